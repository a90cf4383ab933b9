"""Only what pyproject.toml cannot say: the native core is built with the package, for CPython 3.11's stable ABI."""

from setuptools import setup

setup(
    cffi_modules=["testbed/dlcp/transport/_native_build.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
