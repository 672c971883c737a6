package palimpsest;

/** The view must not be sent to the model. */
public final class NotSendableException extends PalimpsestException {
    private static final long serialVersionUID = 1L;

    private final String reason;

    NotSendableException(String reason) {
        super("Cannot send the messages to the model: " + reason, null);
        this.reason = reason;
    }

    /** Returns the cause: {@code open_calls}, {@code ends_with_assistant} or {@code empty}. */
    public String reason() {
        return reason;
    }
}
