package palimpsest;

/** Base class of all exceptions of this package. */
public class PalimpsestException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    PalimpsestException(String message, Throwable cause) {
        super(message, cause);
    }

    /** Returns the exception for an interrupted call. The thread keeps its interrupt flag. */
    static PalimpsestException interrupted(InterruptedException cause) {
        Thread.currentThread().interrupt();
        return new PalimpsestException("The thread was interrupted during a call of Palimpsest.", cause);
    }
}
