//! How metrics are declared: `metrics!` makes the field, the registration
//! and the handles of a metric from one entry, whose documentation is its help.
//!
//! ```text
//! metrics! {
//!     /// Connections of clients.                                  one struct of handles, registered once
//!     pub struct ConnectionMetrics {
//!         /// Client connections accepted.
//!         accepted: IntCounter = "trunkline_connections_accepted_total";
//!         /// Client connections refused, by the bound that was met.
//!         refused: IntCounterVec["limit"] = "trunkline_connections_refused_total";
//!     }
//! }
//! metrics! {
//!     /// The child processes of one upstream.                     handles of one label's value: `Families<ChildSeries>`
//!     pub struct ChildSeries["upstream"] {
//!         /// Child processes that are running.
//!         running: IntGauge = "trunkline_children";
//!         /// Starts of child processes, by result.
//!         starts: ByResult = "trunkline_child_starts_total";
//!     }
//! }
//! ```
//!
//! Invariant: a handle is resolved by its labels when its struct is made, and never where something is counted.

use std::fmt;
use std::sync::Arc;

use prometheus::Result;
use prometheus::proto::MetricType;

use super::registry::Registry;
use super::vec::{MetricVec, Series};

#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub name: String,
    pub help: String,
    pub labels: Vec<String>,
    /// Upper bounds of the buckets of a histogram.
    pub bounds: Arc<[f64]>,
}

impl Declaration {
    /// A metric of this name; `help` is the text of its documentation, whose backquotes scrapes do not have.
    pub(crate) fn new(name: &str, help: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), help: help.trim().to_owned(), labels, bounds: Arc::new([]) }
    }

    #[must_use]
    pub(crate) fn buckets(mut self, bounds: &[f64]) -> Self {
        self.bounds = bounds.into();
        self
    }

    pub(crate) fn register<S: Series + 'static>(self, registry: &Registry) -> Result<MetricVec<S>> {
        registry.add(MetricVec::new(self)?)
    }
}

/// What the type of a declared field says of how it is registered.
pub(crate) trait Registered: Sized {
    /// Registers the metric. Fails only if there is one of the same name.
    fn register(registry: &Registry, declaration: Declaration) -> Result<Self>;
}

/// Series of one metric that are found without their labels: a single one, or one for each value of a label.
pub(crate) trait Handle: Sized {
    type Series: Series + 'static;
    /// The labels whose values this tells apart.
    const LABELS: &'static [&'static str];

    /// The handle to the series whose other labels have these `values`.
    fn resolve(metric: &MetricVec<Self::Series>, values: &[&str]) -> Self;

    /// Removes the series whose other labels have these `values`, if they are gauges: counters never go back.
    fn forget(metric: &MetricVec<Self::Series>, values: &[&str]);
}

/// One series for each value of a label.
pub(crate) trait LabelValues<S> {
    fn each<'s>(&'s self) -> impl Iterator<Item = &'s S>
    where
        S: 's;
}

/// Handles to one series each of several metrics that share a label.
pub(crate) trait SeriesOf: Sized {
    type Metrics;

    /// Registers them. Fails only if there is one of the same name.
    fn register(registry: &Registry) -> Result<Self::Metrics>;

    fn resolve(metrics: &Self::Metrics, value: &str) -> Self;

    fn forget(metrics: &Self::Metrics, value: &str);
}

/// Metrics that share a label, of each value of which `S` holds the handles. A clone is the same metrics.
pub(crate) struct Families<S: SeriesOf>(Arc<S::Metrics>);

impl<S: SeriesOf> Families<S> {
    /// Registers them. Fails only if there is one of the same name.
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        Ok(Self(Arc::new(S::register(registry)?)))
    }

    pub(crate) fn of(&self, value: &str) -> S {
        S::resolve(&self.0, value)
    }

    /// What this value stands for is no longer in the configuration: its gauges go, its counters stay.
    pub(crate) fn forget(&self, value: &str) {
        S::forget(&self.0, value);
    }
}

impl<S: SeriesOf> Clone for Families<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: SeriesOf> fmt::Debug for Families<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

impl<S: Series + 'static> Handle for S {
    type Series = S;
    const LABELS: &'static [&'static str] = &[];

    fn resolve(metric: &MetricVec<S>, values: &[&str]) -> Self {
        metric.with_label_values(values)
    }

    fn forget(metric: &MetricVec<S>, values: &[&str]) {
        if S::KIND == MetricType::GAUGE {
            // One that was never set is none.
            let _ = metric.remove_label_values(values);
        }
    }
}

impl<S: Series + 'static> Registered for MetricVec<S> {
    fn register(registry: &Registry, declaration: Declaration) -> Result<Self> {
        declaration.register(registry)
    }
}

impl<H: Handle> Registered for H {
    fn register(registry: &Registry, mut declaration: Declaration) -> Result<Self> {
        declaration.labels.extend(H::LABELS.iter().map(ToString::to_string));
        Ok(H::resolve(&declaration.register(registry)?, &[]))
    }
}

/// Declares metrics that belong together; see the head of this file.
macro_rules! metrics {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[doc = $help:literal])+ $field:ident: $type:ty $([$($label:literal),+])? = $metric:literal $(in $buckets:expr)?;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl $name {
            /// Fails only if there is one of the same name.
            pub(crate) fn register(
                registry: &$crate::telemetry::metrics::registry::Registry,
            ) -> prometheus::Result<Self> {
                use $crate::telemetry::metrics::declare::{Declaration, Registered};
                Ok(Self {
                    $($field: <$type as Registered>::register(
                        registry,
                        Declaration::new($metric, concat!($($help),+), &[$($($label),+)?])$(.buckets(&$buckets))?,
                    )?,)+
                })
            }
        }
    };
    ($(#[$about:meta])* pub struct $series:ident[$label:literal] {
        $($(#[doc = $help:literal])+ $field:ident: $type:ty = $metric:literal $(in $buckets:expr)?;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub(crate) struct $series {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl $crate::telemetry::metrics::declare::SeriesOf for $series {
            type Metrics = ($($crate::telemetry::metrics::vec::MetricVec<
                <$type as $crate::telemetry::metrics::declare::Handle>::Series,
            >,)+);

            fn register(
                registry: &$crate::telemetry::metrics::registry::Registry,
            ) -> prometheus::Result<Self::Metrics> {
                use $crate::telemetry::metrics::declare::{Declaration, Handle};
                Ok(($({
                    let labels = [&[$label], <$type as Handle>::LABELS].concat();
                    Declaration::new($metric, concat!($($help),+), &labels)$(.buckets(&$buckets))?.register(registry)?
                },)+))
            }

            fn resolve(($($field,)+): &Self::Metrics, value: &str) -> Self {
                use $crate::telemetry::metrics::declare::Handle;
                Self { $($field: Handle::resolve($field, &[value]),)+ }
            }

            fn forget(($($field,)+): &Self::Metrics, value: &str) {
                use $crate::telemetry::metrics::declare::Handle;
                $(<$type as Handle>::forget($field, &[value]);)+
            }
        }
    };
}

/// Declares the values of a label that are told apart by name, one series each.
macro_rules! label_values {
    ($(#[$about:meta])* pub struct $name:ident[$label:literal] { $($(#[$doc:meta])* $value:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name<S = prometheus::IntCounter> {
            $($(#[$doc])* pub $value: S,)+
        }

        impl<S> $crate::telemetry::metrics::declare::LabelValues<S> for $name<S> {
            fn each<'s>(&'s self) -> impl Iterator<Item = &'s S>
            where
                S: 's,
            {
                [$(&self.$value),+].into_iter()
            }
        }

        impl<S: $crate::telemetry::metrics::vec::Series + 'static> $crate::telemetry::metrics::declare::Handle
            for $name<S>
        {
            type Series = S;
            const LABELS: &'static [&'static str] = &[$label];

            fn resolve(
                metric: &$crate::telemetry::metrics::vec::MetricVec<S>,
                values: &[&str],
            ) -> Self {
                Self { $($value: metric.with_label_values(&[values, &[stringify!($value)]].concat()),)+ }
            }

            fn forget(metric: &$crate::telemetry::metrics::vec::MetricVec<S>, values: &[&str]) {
                $(<S as $crate::telemetry::metrics::declare::Handle>::forget(
                    metric,
                    &[values, &[stringify!($value)]].concat(),
                );)+
            }
        }
    };
}

pub(crate) use {label_values, metrics};
