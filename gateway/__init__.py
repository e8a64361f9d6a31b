"""Trinity as a tool server: what MCP clients may call, by the same rules and with the same answers as over REST.

Only `gateway.server` imports the MCP library, and only `trinity.asgi` imports that: it costs a second and tens of megabytes.
"""
