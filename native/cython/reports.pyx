# distutils: language = c++
from libcpp.vector cimport vector

from stf_places._native.core cimport PlaceStatistics as PlaceCounts, Statistics, TraceRecord as Record

from collections import namedtuple

PlaceStatistics = namedtuple("PlaceStatistics", "place tasks bytes_in bytes_out", module="stf_places.flow")
ContextStatistics = namedtuple(
    "ContextStatistics",
    "tasks events_recorded waits waits_skipped copies bytes_copied allocations reused_blocks evictions "
    "graphs_launched graphs_instantiated places",
    module="stf_places.flow")
TraceRecord = namedtuple(
    "TraceRecord", "kind symbol place device stream start_us end_us nbytes", module="stf_places.flow")


cdef object statistics_of(Context* context):
    cdef Statistics counts = context.statistics()
    cdef vector[PlaceCounts] by_place = context.place_statistics()
    cdef size_t i
    places = tuple([
        PlaceStatistics(by_place[i].place.decode(), by_place[i].tasks, by_place[i].bytes_in, by_place[i].bytes_out)
        for i in range(by_place.size())])
    return ContextStatistics(
        counts.tasks, counts.events_recorded, counts.waits, counts.waits_skipped, counts.copies,
        counts.bytes_copied, counts.allocations, counts.reused_blocks, counts.evictions, counts.graphs_launched,
        counts.graphs_instantiated, places)


cdef list trace_of(Context* context):
    cdef const vector[Record]* records = &context.trace_records()
    cdef const Record* record
    cdef list result = []
    cdef size_t i
    for i in range(records.size()):
        record = &records.at(i)
        result.append(TraceRecord(record.kind.decode(), record.symbol.decode(), record.place.decode(),
                                  record.device, record.stream, record.start_us, record.end_us, record.nbytes))
    return result
