# SPDX-License-Identifier: BSD-3-Clause
"""Excludes this package from torch.compile: a compiled model runs its functions uncompiled."""
import inspect
from types import ModuleType
from typing import Any, Callable

import torch


def _keep_out(function: Callable[..., Any]) -> None:
    """Prevents tracing into the function, and compiling it when it is called from outside.

    Equivalent to torch.compiler.disable, which would import the compiler and thus take 1 to 2 s.
    """
    evaluation = torch._C._dynamo.eval_frame
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    if hasattr(evaluation, "set_code_exec_strategy"):  # torch 2.8; not needed in older versions
        skip = evaluation._FrameAction.SKIP
        strategy = evaluation._FrameExecStrategy(skip, skip)
        evaluation.set_code_exec_strategy(function.__code__, strategy)


def run_eagerly(*modules: ModuleType) -> None:
    """Excludes all functions of these modules, and all methods of their classes."""
    for module in modules:
        for value in list(vars(module).values()):
            if getattr(value, "__module__", None) != module.__name__:
                continue
            members = list(vars(value).values()) if inspect.isclass(value) else [value]
            for member in filter(inspect.isfunction, members):
                _keep_out(member)
