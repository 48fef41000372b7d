# SPDX-License-Identifier: BSD-3-Clause
"""Reads the files of examples/cluster/ for Kubernetes.

check FILE...       checks that the fields exist and agree with each other; prints the first error
variables FILE      prints the variables of the Job's container, NAME=VALUE
command FILE        prints the command of the Job, or of the MPIJob's launcher, one quoted word per line
ranks FILE          prints the number of ranks
"""
import re
import shlex
import sys

import yaml

CONTAINER = {"name", "image", "command", "env", "resources"}
POD = {"containers", "restartPolicy", "subdomain"}
FIELDS = {
    "Service": {"clusterIP", "publishNotReadyAddresses", "selector"},
    "Job": {"completionMode", "completions", "parallelism", "backoffLimit", "template"},
    "MPIJob": {"slotsPerWorker", "mpiImplementation", "runPolicy", "mpiReplicaSpecs"},
}
VERSIONS = {"Service": "v1", "Job": "batch/v1", "MPIJob": "kubeflow.org/v2beta1"}
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")


def require(condition, text):
    if not condition:
        sys.exit(text)


def fields(what, given, known):
    unknown = set(given) - known
    require(not unknown, f"{what}: unknown: {', '.join(sorted(unknown))}")


def container_of(template):
    fields("pod", template["spec"], POD)
    (container,) = template["spec"]["containers"]
    fields("container", container, CONTAINER)
    require(LABEL.match(container["name"]) and container["image"], "container: name and image")
    for variable in container.get("env", []):
        require(isinstance(variable["value"], str), f"{variable['name']}: the value must be a text")
    return container


def variables_of(job):
    container = container_of(job["spec"]["template"])
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def check_job(job, documents):
    spec, pod, name = job["spec"], job["spec"]["template"]["spec"], job["metadata"]["name"]
    variables = variables_of(job)
    service = documents["Service"]
    require(spec["completionMode"] == "Indexed", "Job: without indices there are no ranks")
    require(spec["completions"] == spec["parallelism"], "Job: all ranks must run at once")
    require(int(variables["WORLD_SIZE"]) == spec["completions"], "WORLD_SIZE: the completions")
    require(pod["restartPolicy"] in ("Never", "OnFailure"), "restartPolicy: of a Job")
    require(pod["subdomain"] == service["metadata"]["name"], "subdomain: the Service's name")
    require(service["spec"]["selector"] == {"job-name": name}, "selector: the Job's name")
    require(service["spec"]["clusterIP"] == "None", "clusterIP: only such a Service names pods")
    require(variables["MASTER_ADDR"] == f"{name}-0.{pod['subdomain']}", "MASTER_ADDR: index 0's pod")


def check_mpi_job(job):
    spec = job["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    command = container_of(launcher["template"])["command"]
    container_of(worker["template"])
    require(launcher["replicas"] == 1, "Launcher: one")
    require(spec["slotsPerWorker"] * worker["replicas"] == int(command[command.index("-np") + 1]),
            "-np: the slots of all workers")


def documents_of(path):
    with open(path, encoding="utf-8") as file:
        documents = {document["kind"]: document for document in yaml.safe_load_all(file)}
    for kind, document in documents.items():
        require(document["apiVersion"] == VERSIONS.get(kind), f"{kind}: apiVersion")
        require(LABEL.match(document["metadata"]["name"]), f"{kind}: name")
        fields(kind, document["spec"], FIELDS[kind])
    return documents


def check(documents):
    if "Job" in documents:
        check_job(documents["Job"], documents)
    else:
        check_mpi_job(documents["MPIJob"])


def main(action, *paths):
    for path in paths:
        documents = documents_of(path)
        job = documents.get("Job")
        if action == "check":
            check(documents)
        elif action == "variables":
            print("\n".join(f"{name}={value}" for name, value in variables_of(job).items()))
        elif action == "ranks":
            print(job["spec"]["completions"])
        else:
            template = (job["spec"] if job else
                        documents["MPIJob"]["spec"]["mpiReplicaSpecs"]["Launcher"])["template"]
            print("\n".join(shlex.quote(word) for word in container_of(template)["command"]))


main(*sys.argv[1:])
