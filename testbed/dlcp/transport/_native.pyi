"""The compiled core (cffi). Its contract is in headers of testbed/native (HEADERS in _native_build.py)."""

from typing import Any

ffi: Any
lib: Any
