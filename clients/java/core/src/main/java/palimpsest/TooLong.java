package palimpsest;

import java.lang.reflect.InvocationTargetException;
import java.util.concurrent.CompletionException;
import java.util.regex.Pattern;

/** Recognizes the errors of providers that report a prompt as too long. */
final class TooLong {
    /** Wordings of providers. The service parses the numbers of the text. */
    private static final Pattern WORDING = Pattern.compile(
            "prompt (is )?too long|context[ _]length[ _]exceeded|maximum context length"
                    + "|exceed\\w* (the |this )?(model'?s )?(available |maximum )?context[ _](length|size|window|limit)"
                    + "|context window exceeds|input (is )?too long|too many input tokens|input token count"
                    + "|maximum number of tokens allowed|longer than the (model's context|maximum model) length"
                    + "|reduce the length of the (messages|prompt|input)|request_too_large",
            Pattern.CASE_INSENSITIVE);

    private TooLong() {}

    static boolean matches(Throwable error) {
        // Frameworks and futures wrap the exception of the SDK.
        for (Throwable it = error; it != null; it = it.getCause()) {
            int status = statusOf(it);
            boolean possible = status == 0 || status == 400 || status == 422 || status == 500;
            if (status == 413
                    || possible
                            && WORDING.matcher(String.valueOf(it.getMessage())).find()) {
                return true;
            }
        }
        return false;
    }

    /**
     * Returns the exception to throw after a sync that followed a rejection by the provider. If the service cannot
     * shorten the prompt, this is the rejection, as without the service. It states the limit, for example one that the
     * output tokens exceed. Otherwise it is the failure.
     */
    static <E extends Throwable> E reported(E rejection, E failure) {
        if (!(unwrapped(failure) instanceof ApiException error)
                || !error.reason().equals("PROMPT_TOO_LONG")) {
            return failure;
        }
        unwrapped(rejection).addSuppressed(error);
        return rejection;
    }

    /** Returns the exception of a stage of a future without its wrapper. */
    private static Throwable unwrapped(Throwable error) {
        return error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
    }

    /** Returns the HTTP status, or 0. The exceptions of both SDKs have it, but no common type. */
    private static int statusOf(Throwable error) {
        try {
            Object status = error.getClass().getMethod("statusCode").invoke(error);
            return status instanceof Integer number ? number : 0;
        } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException none) {
            return 0;
        }
    }
}
