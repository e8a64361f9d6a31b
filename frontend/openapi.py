"""The API's machine-readable contract, and its page to read and try it."""

import threading
from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer2
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from core.api.views import PlainNegotiation


class BearerScheme(OpenApiAuthenticationExtension):
    """`Authorization: Bearer …`."""

    target_class = "fleet.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, _auto_schema: object) -> dict[str, str]:
        """A token of `/api/token/`, or an API key."""
        return {"type": "http", "scheme": "bearer", "description": "A token of `/api/token/`, or an API key (`trinity_…`)."}


class BrowserScheme(OpenApiAuthenticationExtension):
    """A signed-in browser."""

    target_class = "fleet.authentication.BrowserAuthentication"
    name = "browser"

    def get_security_definition(self, _auto_schema: object) -> dict[str, str]:
        """Django's session."""
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}


class OneDocument(SchemaGenerator):
    """The document, made once in a process: it is the same for everybody, and takes half a second.

    By one thread: drf-spectacular looks up what it knows of classes at first use, and others who come meanwhile find that half done.
    """

    _making = threading.Lock()
    _made: dict[str, Any] | None = None

    def get_schema(self, request: Any = None, public: bool = False) -> dict[str, Any]:
        """As it was made first, whoever asks."""
        with self._making:
            if OneDocument._made is None:
                self.api_version = None  # not what a caller calls it
                OneDocument._made = super().get_schema(request=None, public=True)
            return OneDocument._made


class SchemaView(SpectacularAPIView):
    """OpenAPI 3.1, as JSON."""

    generator_class = OneDocument
    authentication_classes = ()
    permission_classes = ()
    renderer_classes = [OpenApiJsonRenderer2]  # noqa: RUF012 - a list, as its base has it
    content_negotiation_class = PlainNegotiation


class DocsView(SpectacularSwaggerSplitView):
    """Swagger UI of local files, its script apart from its page."""

    authentication_classes = ()
    permission_classes = ()
    content_negotiation_class = PlainNegotiation
    template_name = "docs.html"
    url_name = "schema"
