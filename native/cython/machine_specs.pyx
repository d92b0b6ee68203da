# distutils: language = c++
from libcpp.string cimport string

from stf_places._native.drivers cimport CallCosts, DeviceSpec, LinkSpec, MachineSpec

DEVICE_FIELDS = ("name", "sm_count", "compute_major", "compute_minor", "min_partition", "alignment",
                 "aligned_sms", "resplit_loss", "memory", "bandwidth", "copy_engines", "page")
LINK_FIELDS = ("from", "to", "peer", "bandwidth", "latency_us")
COST_FIELDS = ("event_record", "event_wait", "kernel_launch", "kernel_latency", "copy_submit", "host_function",
               "allocate", "synchronize", "query", "green_context", "page_map", "page_access", "piece_access",
               "graph_node", "graph_instantiate_node", "graph_launch", "graph_launch_node", "graph_launch_edge",
               "graph_round")
MACHINE_FIELDS = ("name", "driver_version", "devices", "links", "costs")


def check_fields(what, given, fields):
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise ValueError(f"a {what} has the fields {', '.join(fields)}: got {', '.join(map(repr, unknown))}")


cdef DeviceSpec device_of(dict given) except *:
    check_fields("device", given, DEVICE_FIELDS)
    cdef DeviceSpec device
    device.name = (<str>given.get("name", "")).encode()
    device.sm_count = given["sm_count"]
    device.compute_major = given.get("compute_major", 0)
    device.compute_minor = given.get("compute_minor", 0)
    device.min_partition = given.get("min_partition", 0)
    device.alignment = given.get("alignment", 0)
    device.aligned_sms = given.get("aligned_sms", 0)
    device.resplit_loss = given.get("resplit_loss", 0)
    device.memory = given["memory"]
    device.bandwidth = given["bandwidth"]
    device.copy_engines = given.get("copy_engines", 1)
    device.page = given.get("page", device.page)
    return device


cdef LinkSpec link_of(dict given) except *:
    check_fields("link", given, LINK_FIELDS)
    cdef LinkSpec link
    link.from_ = given["from"]
    link.to = given["to"]
    link.peer = given.get("peer", False)
    link.bandwidth = given["bandwidth"]
    link.latency_us = given.get("latency_us", 0.0)
    return link


cdef CallCosts costs_of(dict given) except *:
    check_fields("table of call costs", given, COST_FIELDS)
    cdef CallCosts costs
    costs.event_record = given.get("event_record", 0.0)
    costs.event_wait = given.get("event_wait", 0.0)
    costs.kernel_launch = given.get("kernel_launch", 0.0)
    costs.kernel_latency = given.get("kernel_latency", 0.0)
    costs.copy_submit = given.get("copy_submit", 0.0)
    costs.host_function = given.get("host_function", 0.0)
    costs.allocate = given.get("allocate", 0.0)
    costs.synchronize = given.get("synchronize", 0.0)
    costs.query = given.get("query", 0.0)
    costs.green_context = given.get("green_context", 0.0)
    costs.page_map = given.get("page_map", 0.0)
    costs.page_access = given.get("page_access", 0.0)
    costs.piece_access = given.get("piece_access", 0.0)
    costs.graph_node = given.get("graph_node", 0.0)
    costs.graph_instantiate_node = given.get("graph_instantiate_node", 0.0)
    costs.graph_launch = given.get("graph_launch", 0.0)
    costs.graph_launch_node = given.get("graph_launch_node", 0.0)
    costs.graph_launch_edge = given.get("graph_launch_edge", 0.0)
    costs.graph_round = given.get("graph_round", 0.0)
    return costs


cdef MachineSpec machine_spec_of(dict given) except *:
    check_fields("machine", given, MACHINE_FIELDS)
    cdef MachineSpec spec
    spec.name = (<str>given["name"]).encode()
    spec.driver_version = given.get("driver_version", 13000)
    for device in given["devices"]:
        spec.devices.push_back(device_of(device))
    for link in given.get("links", ()):
        spec.links.push_back(link_of(link))
    spec.costs = costs_of(given.get("costs", {}))
    return spec
