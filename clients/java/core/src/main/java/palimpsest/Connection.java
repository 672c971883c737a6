package palimpsest;

import java.util.concurrent.Executor;

/** The parts of a connection that its sessions share. */
record Connection(Http http, Executor executor, Lanes lanes, WarningLog warningLog) {}
