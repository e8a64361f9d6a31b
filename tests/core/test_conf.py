"""Settings of the wrong kind, told at the start."""

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from core.conf import environment
from core.data_dir import checked_encryption_key


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("TRINITY_LEASE_SECONDS", "soon", "TRINITY_LEASE_SECONDS: 'soon' is not a whole number"),
        ("TRINITY_LEASE_SECONDS", "1", "TRINITY_LEASE_SECONDS must be at least 3, not 1"),
        ("TRINITY_ALLOW_PRIVATE_ADDRESSES", "perhaps", "TRINITY_ALLOW_PRIVATE_ADDRESSES: 'perhaps' is not yes or no"),
        ("TRINITY_LOGIN_RATE", "often", "TRINITY_LOGIN_RATE: 'often' is not a rate such as 10/min"),
        ("TRINITY_LOGIN_RATE", "0/min", "TRINITY_LOGIN_RATE: '0/min' is not a rate such as 10/min"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_variable(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        environment({name: text})
    assert str(refused.value) == sentence


@pytest.mark.parametrize("text", ["10/min", "5/s", "100/hour", "1/d"])
def test_a_rate_is_taken_as_it_is_written(text: str) -> None:
    assert environment({"TRINITY_LOGIN_RATE": text}) == {"TRINITY_LOGIN_RATE": text}


def test_only_a_fernet_key_encrypts_secrets() -> None:
    key = Fernet.generate_key().decode()
    assert checked_encryption_key(key) == key
    with pytest.raises(ImproperlyConfigured, match="TRINITY_ENCRYPTION_KEY is not a Fernet key"):
        checked_encryption_key("short")
