//! What `/metrics` tells: requests of this face, the node with what its services tell, and each query's counters.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};
use savanna_streams_api::handle::QueryStatus;

use crate::types::{NodeStatus, ServiceState};
use crate::view::{Figure, FigureValue};

/// The media type of OpenMetrics text, which Prometheus asks for.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueryLabels {
    query: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServiceLabels {
    service: String,
}

/// Counters of the face itself, kept between scrapes.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    refused: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn latency_buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0])
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("savanna_http");
        let requests = Family::default();
        registry.register("requests", "Requests answered, by route and status", Family::clone(&requests));
        let durations = Family::new_with_constructor(latency_buckets as fn() -> Histogram);
        registry.register(
            "request_duration_seconds",
            "Time from a request to the head of its answer",
            Family::clone(&durations),
        );
        let refused = Counter::default();
        registry.register("refused", "Requests refused because too many were under way", Counter::clone(&refused));
        Self { registry, requests, durations, refused }
    }

    /// Counts a request. `route` is the pattern, not the path, so that there are few of them.
    pub(crate) fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = RequestLabels { method: method.to_owned(), route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&RouteLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    /// Everything as OpenMetrics text.
    pub(crate) fn encode(
        &self,
        node: &NodeStatus,
        figures: &[Figure],
        queries: Option<&[QueryStatus]>,
    ) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode_registry(&mut out, &self.registry)?;
        text::encode_registry(&mut out, &node_registry(node))?;
        text::encode_registry(&mut out, &figure_registry(figures))?;
        if let Some(queries) = queries {
            text::encode_registry(&mut out, &query_registry(queries))?;
        }
        text::encode_eof(&mut out)?;
        Ok(out)
    }
}

fn node_registry(node: &NodeStatus) -> Registry {
    let mut registry = Registry::with_prefix("savanna_node");
    let up = Family::<ServiceLabels, Gauge>::default();
    registry.register("service_up", "1 for a service that runs, 0 for one that does not", Family::clone(&up));
    for service in &node.services {
        let labels = ServiceLabels { service: service.service.clone() };
        up.get_or_create(&labels).set(i64::from(service.state == ServiceState::Running));
    }
    let uptime: Gauge<f64, AtomicU64> = Gauge::default();
    uptime.set(node.uptime_seconds);
    registry.register("uptime_seconds", "Time since the start", uptime);
    if let Some(lease) = &node.lease {
        let serving: Gauge<i64, AtomicI64> = Gauge::default();
        serving.set(i64::from(lease.serving));
        registry.register("lease_serving", "1 while the node may serve under its lease", serving);
    }
    registry
}

/// A family of each name, in the order in which they come.
fn figure_registry(figures: &[Figure]) -> Registry {
    let mut registry = Registry::default();
    let mut names: Vec<&str> = Vec::new();
    for figure in figures {
        if names.contains(&figure.name) {
            continue;
        }
        names.push(figure.name);
        let family = figures.iter().filter(|other| other.name == figure.name);
        match figure.value {
            FigureValue::Counter(_) => register_family::<FigureMetric<COUNTER>>(&mut registry, figure, family),
            FigureValue::Gauge(_) => register_family::<FigureMetric<GAUGE>>(&mut registry, figure, family),
            FigureValue::Histogram { .. } => register_family::<FigureMetric<HISTOGRAM>>(&mut registry, figure, family),
        }
    }
    registry
}

const COUNTER: u8 = 0;
const GAUGE: u8 = 1;
const HISTOGRAM: u8 = 2;

/// A figure as the registry takes it. What kind it is of, the registry wants to know without having one.
#[derive(Debug, Default)]
struct FigureMetric<const KIND: u8>(OnceLock<FigureValue>);

/// What is told a value once.
trait Hold {
    fn hold(&self, value: FigureValue);
}

impl<const KIND: u8> Hold for FigureMetric<KIND> {
    fn hold(&self, value: FigureValue) {
        // The first of those that have the same labels counts.
        let _ = self.0.set(value);
    }
}

impl<const KIND: u8> TypedMetric for FigureMetric<KIND> {
    const TYPE: MetricType = match KIND {
        COUNTER => MetricType::Counter,
        GAUGE => MetricType::Gauge,
        _ => MetricType::Histogram,
    };
}

impl<const KIND: u8> EncodeMetric for FigureMetric<KIND> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.0.get() {
            Some(FigureValue::Counter(value)) => encoder.encode_counter::<NoLabelSet, _, f64>(value, None),
            Some(FigureValue::Gauge(value)) => encoder.encode_gauge(value),
            Some(FigureValue::Histogram { upto, counts, sum }) => {
                // The last end is above everything.
                let ends = upto.iter().copied().chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = ends.zip(counts.iter().copied()).collect();
                encoder.encode_histogram::<NoLabelSet>(*sum, counts.iter().sum(), &buckets, None)
            }
            None => Ok(()),
        }
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// A figure without labels is alone, and is written without the brackets of an empty set of labels.
fn register_family<'a, M: Metric + TypedMetric + Default + Hold>(
    registry: &mut Registry,
    first: &Figure,
    family: impl Iterator<Item = &'a Figure>,
) {
    let set = |metric: &M, figure: &Figure| metric.hold(figure.value.clone());
    if first.labels.is_empty() {
        let alone = M::default();
        set(&alone, first);
        return registry.register(first.name, first.help, alone);
    }
    let labelled = Family::<Vec<(&'static str, String)>, M>::default();
    for figure in family {
        set(&labelled.get_or_create(&figure.labels), figure);
    }
    registry.register(first.name, first.help, labelled);
}

/// A metric's name, its help, and its value for a query.
type QueryMetric<N> = (&'static str, &'static str, fn(&QueryStatus) -> N);

fn query_registry(queries: &[QueryStatus]) -> Registry {
    let mut registry = Registry::with_prefix("savanna_streams");
    let running = Gauge::<i64>::default();
    let count = queries.iter().filter(|q| !q.state.is_over()).count();
    running.set(i64::try_from(count).unwrap_or(i64::MAX));
    registry.register("queries_running", "Queries that run", running);

    let counters: [QueryMetric<u64>; 7] = [
        ("query_events", "Events read, left-out ones included", |q| q.events),
        ("query_result_rows", "Rows given to the sink", |q| q.result_rows),
        ("query_late_rows", "Rows dropped because they were too late", |q| q.late_rows),
        ("query_skipped_rows", "Rows skipped because they were malformed", |q| q.skipped_rows),
        ("query_windows", "Windows closed", |q| q.windows),
        ("query_invocations", "Function invocations", |q| q.invocations),
        ("query_billed_milliseconds", "Time that functions would have billed", |q| q.billed_ms),
    ];
    for (name, help, value) in counters {
        let family = Family::<QueryLabels, Counter>::default();
        for query in queries {
            family.get_or_create(&labels_of(query)).inc_by(value(query));
        }
        registry.register(name, help, family);
    }

    let more_counters: [QueryMetric<Option<f64>>; 3] = [
        ("query_snapshot_pauses", "Times that a member handed its state out for a snapshot", |q| {
            q.more.get("snapshot_pauses").copied()
        }),
        ("query_snapshot_paused_seconds", "Time in which members handed their states out", |q| {
            q.more.get("snapshot_paused_seconds").copied()
        }),
        ("query_snapshots_failed", "Snapshots that were given up", |q| q.more.get("snapshots_failed").copied()),
    ];
    for (name, help, value) in more_counters {
        let family = Family::<QueryLabels, Counter<f64, AtomicU64>>::default();
        for query in queries {
            if let Some(value) = value(query) {
                family.get_or_create(&labels_of(query)).inc_by(value);
            }
        }
        registry.register(name, help, family);
    }

    let gauges: [QueryMetric<Option<f64>>; 12] = [
        ("query_state_bytes", "State held", |q| Some(q.state_bytes as f64)),
        ("query_epoch", "The last committed epoch", |q| Some(q.epoch as f64)),
        ("query_cpu_seconds", "CPU time, generators included", |q| Some(q.cpu_seconds)),
        ("query_watermark_seconds", "The lowest watermark since 1970", watermark_seconds),
        ("query_view_rows", "Rows of the materialized view that it fills", |q| q.more.get("view_rows").copied()),
        ("query_view_bytes", "Memory of the materialized view that it fills", |q| q.more.get("view_bytes").copied()),
        ("query_view_epoch", "The epoch of the materialized view that it fills", |q| q.more.get("view_epoch").copied()),
        ("query_snapshot_epoch", "The epoch of the snapshot that counts", |q| q.more.get("snapshot_epoch").copied()),
        ("query_snapshot_bytes", "Bytes of the snapshot that counts", |q| q.more.get("snapshot_bytes").copied()),
        ("query_snapshot_written_bytes", "Bytes that were written for the snapshot that counts", |q| {
            q.more.get("snapshot_written_bytes").copied()
        }),
        ("query_snapshot_pause_seconds", "Longest time in which a member handed its state out, last snapshot", |q| {
            q.more.get("snapshot_pause_seconds").copied()
        }),
        ("query_snapshot_pause_max_seconds", "Longest time in which a member handed its state out", |q| {
            q.more.get("snapshot_pause_max_seconds").copied()
        }),
    ];
    for (name, help, value) in gauges {
        let family = Family::<QueryLabels, Gauge<f64, AtomicU64>>::default();
        for query in queries {
            if let Some(value) = value(query) {
                family.get_or_create(&labels_of(query)).set(value);
            }
        }
        registry.register(name, help, family);
    }
    registry
}

fn labels_of(query: &QueryStatus) -> QueryLabels {
    QueryLabels { query: query.query.to_string() }
}

/// None before the first watermark, and after the last, which is the end of time.
fn watermark_seconds(query: &QueryStatus) -> Option<f64> {
    query.watermark.filter(|w| *w != i64::MAX && *w != i64::MIN).map(|microseconds| microseconds as f64 / 1e6)
}
