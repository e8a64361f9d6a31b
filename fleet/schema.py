"""What the OpenAPI schema says of tokens and agents."""

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from core.api.schema import LIST_PARAMETERS, header, operation

from .serializers import AgentIn, AgentOut, AgentPatchIn, AuditOut, FleetAuditOut, PublicLinkIn, PublicLinkOut, RefreshIn, TokenIn


class TokenOut(serializers.Serializer):
    """A pair of tokens."""

    access = serializers.CharField()
    refresh = serializers.CharField()


class AccessOut(serializers.Serializer):
    """A new access token."""

    access = serializers.CharField()


class AuditPageOut(serializers.Serializer):
    """A page of an agent's changes."""

    results = AuditOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class FleetAuditPageOut(serializers.Serializer):
    """A page of changes."""

    results = FleetAuditOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class AgentPageOut(serializers.Serializer):
    """A page of agents."""

    results = AgentOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class PublicLinkPageOut(serializers.Serializer):
    """A page of public links."""

    results = PublicLinkOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class NewPublicLinkOut(PublicLinkOut):
    """A public link just made: its token is shown this once."""

    token = serializers.CharField()
    url = serializers.CharField(help_text="Where messages are sent: a path of this server.")


_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, description="The agent.", response=[201])

token_create = operation("token_create", answers={200: TokenOut}, problems=(401, 429), body=TokenIn, public=True)
token_refresh = operation("token_refresh", answers={200: AccessOut}, problems=(401,), body=RefreshIn, public=True)
agent_audit = operation("agent_audit", answers={200: AuditPageOut}, problems=(404,), parameters=LIST_PARAMETERS)
audit_list = operation("audit_list", answers={200: FleetAuditPageOut}, parameters=LIST_PARAMETERS)
agent_list = operation("agent_list", answers={200: AgentPageOut}, parameters=LIST_PARAMETERS)
agent_create = operation(
    "agent_create", answers={201: OpenApiResponse(AgentOut, "It exists now.")}, problems=(409,), body=AgentIn, parameters=[_LOCATION]
)
_TAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, description="The version of the settings.", response=[200])
_IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="Change only this version of the settings.")

agent_detail = operation("agent_detail", answers={200: AgentOut}, problems=(404,), parameters=[_TAG])
agent_update = operation("agent_update", answers={200: AgentOut}, problems=(404, 412), body=AgentPatchIn, parameters=[_IF_MATCH, _TAG])
agent_delete = operation(
    "agent_delete", answers={204: OpenApiResponse(description="It is gone; what of it still runs is being stopped.")}, problems=(404,)
)

public_link_list = operation("public_link_list", answers={200: PublicLinkPageOut}, problems=(404,), parameters=LIST_PARAMETERS)
public_link_create = operation(
    "public_link_create",
    answers={201: OpenApiResponse(NewPublicLinkOut, "It leads to the agent now.")},
    problems=(404,),
    body=PublicLinkIn,
    parameters=[header("Location", "Where it can be taken back.", answers=[201])],
)
public_link_delete = operation(
    "public_link_delete", answers={204: OpenApiResponse(description="It leads nowhere any more.")}, problems=(404,)
)
