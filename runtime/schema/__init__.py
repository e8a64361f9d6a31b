"""What the OpenAPI schema says of the endpoints, by what they are about."""
