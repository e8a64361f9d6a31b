"""Commands under a process of their own, so that none of them outlives the worker that started it.

`child` is that process, one for each worker process; `client` is the worker's end of it.
"""
