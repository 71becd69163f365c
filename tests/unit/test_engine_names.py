"""An engine is known everywhere it must be named."""

from servebench import configuration, estimate
from servebench.engines import ADAPTERS


def test_every_engine_is_known_to_configuration_and_estimate():
    assert set(configuration.KINDS) == set(ADAPTERS) == set(estimate.START_S)
