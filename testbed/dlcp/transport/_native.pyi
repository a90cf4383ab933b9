"""The compiled core (cffi). Its contract is in testbed/native/{wire,protocol,engine,traffic,codepoint,aqm}.h."""

from typing import Any

ffi: Any
lib: Any
