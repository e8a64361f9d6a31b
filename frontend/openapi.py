"""The API's machine-readable contract, and its page to read and try it."""

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
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


class SchemaView(SpectacularAPIView):
    """OpenAPI 3.1, as JSON."""

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
