//! Skips all spans inside an unsampled call. They would never be exported, and each one has a cost.

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use super::SPANS;

/// A span extension: the span and its children are not exported.
struct NotSampled;

/// Marks a span as not exported, including its children.
pub(super) fn not_sampled(span: &Span) {
    span.with_subscriber(|(id, dispatch)| {
        let spans = dispatch.downcast_ref::<Registry>();
        if let Some(span) = spans.and_then(|spans| spans.span(id)) {
            span.extensions_mut().replace(NotSampled);
        }
    });
}

/// A filter for exported spans, without the children of unsampled spans.
pub(super) struct Sampled;

impl<S> Filter<S> for Sampled
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn enabled(&self, meta: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        is_ours(meta)
            && context
                .lookup_current()
                .is_none_or(|within| within.extensions().get::<NotSampled>().is_none())
    }

    fn callsite_enabled(&self, meta: &'static Metadata<'static>) -> Interest {
        if is_ours(meta) {
            // `sometimes` makes `enabled` run for each span, because the decision depends on the parent span.
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }
}

fn is_ours(meta: &Metadata<'_>) -> bool {
    meta.target() == SPANS && *meta.level() <= LevelFilter::DEBUG
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::span::{Attributes, Id};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// A layer that records the names of the spans it receives.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<&'static str>>>);

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
            self.0.lock().unwrap().push(attributes.metadata().name());
        }
    }

    #[test]
    fn children_of_unsampled_spans_are_not_exported() {
        let seen = Seen::default();
        let subscriber = Registry::default().with(seen.clone().with_filter(Sampled));
        tracing::subscriber::with_default(subscriber, || {
            let call = || tracing::info_span!(target: SPANS, "call");
            let within = || drop(tracing::debug_span!(target: SPANS, "within"));
            let of_a_library = || drop(tracing::info_span!("of a library"));
            let (sampled, other) = (call(), call());
            not_sampled(&other);
            for call in [sampled, other] {
                call.in_scope(within);
                call.in_scope(of_a_library);
            }
        });
        assert_eq!(*seen.0.lock().unwrap(), ["call", "call", "within"]);
    }
}
