"""The simulated API server, loaded from its file: gangs are tested without the rest of the twin."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.twin.kubernetes.api_server import ApiServer, Watch
else:
    import windtunnel.core

    _NAME = "windtunnel_simulated_api_server"
    if _NAME not in sys.modules:
        _PACKAGE = Path(windtunnel.core.__file__).parents[1]
        _PATH = _PACKAGE / "twin" / "kubernetes" / "api_server.py"
        _SPEC = importlib.util.spec_from_file_location(_NAME, _PATH)
        sys.modules[_NAME] = importlib.util.module_from_spec(_SPEC)
        _SPEC.loader.exec_module(sys.modules[_NAME])
    ApiServer = sys.modules[_NAME].ApiServer
    Watch = sys.modules[_NAME].Watch

__all__ = ["ApiServer", "Watch"]
