"""A parser served by HTTP: a JSON API, the services that UDPipe's and INCEpTION's clients know, and a page.

``create_app`` (``app.py``) makes an application of a pipeline, for any ASGI server; it needs the extra ``serve``.
"""
