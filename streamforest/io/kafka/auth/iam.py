"""SASL/AWS_MSK_IAM: the login of Amazon MSK, signed with the AWS credentials of this machine.

kafka-python signs (SigV4); botocore finds the credentials as every AWS client does: environment variables,
the shared credentials file and its profiles, a web identity token, the roles of containers and instances.
They are asked for at every login, so that temporary ones are renewed while a pipeline runs. The region is
that in the broker's own name; botocore's, if the name has none.
"""

from __future__ import annotations

import logging
import os
import re
from importlib.util import find_spec
from typing import Any

from kafka.net.sasl.msk import AwsMskIamClient, SaslMechanismAwsMskIam

from streamforest.io.kafka.auth.secrets import LoginError
from streamforest.text import printable

log = logging.getLogger(__name__)

MISSING = "needs botocore: pip install 'streamforest[msk]'"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


class CredentialsError(LoginError):
    """No AWS credentials, or no region, to sign a login with."""


def is_installed() -> bool:
    """Whether botocore is there."""
    return find_spec("botocore") is not None


def region_of(host: str) -> str | None:
    """The region in the name of an MSK broker.

    >>> region_of("b-1.demo.abcde.c2.kafka.eu-central-1.amazonaws.com")
    'eu-central-1'
    >>> region_of("boot-abcde.c1.kafka-serverless.us-east-1.amazonaws.com"), region_of("localhost")
    ('us-east-1', None)
    """
    found = _REGION.search(host)
    return None if found is None else found[1]


class IamLogin(SaslMechanismAwsMskIam):  # type: ignore[misc]
    """kafka-python's login, with the region of the broker and errors that say what to do."""

    _reported = ""

    def _build_client(self) -> Any:
        """As kafka-python does it. What is missing is logged, once until it is there: kafka-python keeps
        it to itself.
        """
        try:
            client = self._signer()
        except CredentialsError as error:
            if str(error) != IamLogin._reported:
                IamLogin._reported = str(error)
                log.warning("%s", error)
            raise
        IamLogin._reported = ""
        return client

    def _signer(self) -> Any:
        botocore = logging.getLogger("botocore")
        if botocore.getEffectiveLevel() < logging.INFO:
            botocore.setLevel(logging.INFO)  # below that it logs what it signs and sends
        session = self._boto_session_cls()
        try:
            credentials = session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
            region = region_of(self.host) or os.environ.get("AWS_REGION")
            region = region or session.get_config_variable("region")
        except Exception as error:  # botocore's own have two roots, and it lets others through
            said = printable(str(error) or type(error).__name__, 300)
            raise CredentialsError(f"AWS credentials cannot be had: {said}") from error
        if frozen is None or not frozen.access_key:
            raise CredentialsError(
                "no AWS credentials for sasl_mechanism = 'AWS_MSK_IAM': set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give this machine or container a role"
            )
        if not region:
            raise CredentialsError(
                f"no AWS region for broker '{self.host}': set AWS_REGION (or use the name that MSK gives)"
            )
        return AwsMskIamClient(
            host=self.host,
            access_key=frozen.access_key,
            secret_key=frozen.secret_key,
            region=region,
            token=frozen.token,
        )
