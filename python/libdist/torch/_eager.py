# SPDX-License-Identifier: BSD-3-Clause
"""Keeps torch.compile out of this package: what a compiled model calls here runs as it is."""
import inspect
from types import ModuleType
from typing import Any, Callable

import torch


def _keep_out(function: Callable[..., Any]) -> None:
    """Neither traced where it is called, nor compiled where it is called from outside.

    As torch.compiler.disable, which imports the compiler, in a second or two.
    """
    evaluation = torch._C._dynamo.eval_frame
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    if hasattr(evaluation, "set_code_exec_strategy"):  # torch 2.8; older ones need none
        skip = evaluation._FrameAction.SKIP
        strategy = evaluation._FrameExecStrategy(skip, skip)
        evaluation.set_code_exec_strategy(function.__code__, strategy)


def run_eagerly(*modules: ModuleType) -> None:
    """All functions of these modules, and all methods of their classes."""
    for module in modules:
        for value in list(vars(module).values()):
            if getattr(value, "__module__", None) != module.__name__:
                continue
            members = list(vars(value).values()) if inspect.isclass(value) else [value]
            for member in filter(inspect.isfunction, members):
                _keep_out(member)
