"""What the OpenAPI schema says of tokens and agents."""

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from core.api.schema import LIST_PARAMETERS, operation

from .serializers import AgentIn, AgentOut, RefreshIn, TokenIn


class TokenOut(serializers.Serializer):
    """A pair of tokens."""

    access = serializers.CharField()
    refresh = serializers.CharField()


class AccessOut(serializers.Serializer):
    """A new access token."""

    access = serializers.CharField()


class AgentPageOut(serializers.Serializer):
    """A page of agents."""

    results = AgentOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, description="The agent.", response=[201])

token_create = operation("token_create", answers={200: TokenOut}, problems=(429,), body=TokenIn, public=True)
token_refresh = operation("token_refresh", answers={200: AccessOut}, body=RefreshIn, public=True)
agent_list = operation("agent_list", answers={200: AgentPageOut}, parameters=LIST_PARAMETERS)
agent_create = operation(
    "agent_create", answers={201: OpenApiResponse(AgentOut, "It exists now.")}, problems=(409,), body=AgentIn, parameters=[_LOCATION]
)
agent_detail = operation("agent_detail", answers={200: AgentOut}, problems=(404,))
