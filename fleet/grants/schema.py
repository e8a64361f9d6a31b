"""What the OpenAPI schema says of shares and keys."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from core.api.schema import LIST_PARAMETERS, header, operation

from .serializers import AgentKeyIn, KeyIn, KeyOut, ShareIn, ShareOut


class SharePageOut(serializers.Serializer):
    """A page of shares."""

    results = ShareOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class KeyPageOut(serializers.Serializer):
    """A page of keys."""

    results = KeyOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class NewKeyOut(KeyOut):
    """A key just made: it is shown this once."""

    key = serializers.CharField(help_text="For `Authorization: Bearer …`.")


_MADE = OpenApiResponse(NewKeyOut, "It works now.")
_REVOKED = OpenApiResponse(description="It is refused from now on; again: the same.")
_PLACE = header("Location", "Where it can be taken back.", answers=[201])

share_list = operation("share_list", answers={200: SharePageOut}, problems=(404,), parameters=LIST_PARAMETERS)
share_create = operation(
    "share_create",
    answers={201: OpenApiResponse(ShareOut, "They may use it now."), 200: OpenApiResponse(ShareOut, "It was shared with them already.")},
    problems=(404,),
    body=ShareIn,
    parameters=[header("Location", "Where it can be taken back.", answers=[200, 201])],
)
share_delete = operation("share_delete", answers={204: OpenApiResponse(description="They may use it no more.")}, problems=(404,))
agent_key_list = operation("agent_key_list", answers={200: KeyPageOut}, problems=(404,), parameters=LIST_PARAMETERS)
agent_key_create = operation("agent_key_create", answers={201: _MADE}, problems=(404,), body=AgentKeyIn, parameters=[_PLACE])
agent_key_revoke = operation("agent_key_revoke", answers={204: _REVOKED}, problems=(404,))
key_list = operation("key_list", answers={200: KeyPageOut}, parameters=LIST_PARAMETERS)
key_create = operation("key_create", answers={201: _MADE}, body=KeyIn, parameters=[_PLACE])
key_revoke = operation("key_revoke", answers={204: _REVOKED}, problems=(404,))
