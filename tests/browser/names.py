"""Names that the seeded fleet and its pages share; without Django, which only the seeding has."""

LONG_NAME = "an-agent-whose-name-is-as-long-as-a-name-may-be-" + "n" * 15
