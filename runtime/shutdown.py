"""Whether this worker process is on its way out: it takes no next run in place then."""

import threading

leaving = threading.Event()
