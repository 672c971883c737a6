//! The fields of spans in lines of JSON. Every call has a span, and most say nothing in the log: so what they may have
//! to say is written down at little cost, each field once and where it belongs.

use std::fmt::{self, Write as _};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormattedFields;
use tracing_subscriber::fmt::format::{FormatFields, Writer};

/// Writes fields as an object of JSON. The subscriber's own does so too, but reads and writes the whole object again
/// for each field that comes later.
#[derive(Debug, Clone, Copy)]
pub(super) struct JsonObject;

impl<'writer> FormatFields<'writer> for JsonObject {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut object = Object {
            text: String::from("{"),
            begins: true,
        };
        fields.record(&mut object);
        object.text.push('}');
        writer.write_str(&object.text)
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let mut text = std::mem::take(&mut current.fields);
        if text.pop().is_none() {
            text.push('{');
        }
        let begins = text.len() == 1;
        let mut object = Object { text, begins };
        fields.record(&mut object);
        object.text.push('}');
        current.fields = object.text;
        Ok(())
    }
}

/// An object that is being written.
struct Object {
    text: String,
    begins: bool,
}

impl Object {
    fn field(&mut self, field: &Field, value: impl Serialize) {
        // Numbers that JSON does not have are left out.
        let Ok(value) = serde_json::to_string(&value) else {
            return;
        };
        let comma = if self.begins { "" } else { "," };
        self.begins = false;
        // Names of fields are identifiers.
        let _ = write!(self.text, "{comma}\"{}\":{value}", field.name());
    }
}

impl Visit for Object {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::field::Empty;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use crate::telemetry::tests::Memory;

    #[test]
    fn fields_are_told_whenever_they_came() {
        let written = Memory::default();
        let writer = written.clone();
        let lines = super::super::lines(crate::config::LogFormat::Json, false, move || {
            writer.clone()
        });
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            let span = tracing::info_span!("call", a = "x\"y", n = 3, late = Empty, never = Empty);
            span.record("late", true);
            let empty = tracing::info_span!("empty", only = Empty);
            span.in_scope(|| tracing::info!("one"));
            empty.in_scope(|| tracing::info!("two"));
            empty.record("only", tracing::field::display("it"));
            empty.in_scope(|| tracing::info!("three"));
        });
        let lines: Vec<serde_json::Value> = (written.text().lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let spans: Vec<_> = lines.iter().map(|line| line["span"].to_string()).collect();
        assert_eq!(
            spans,
            [
                r#"{"a":"x\"y","late":true,"n":3,"name":"call"}"#,
                r#"{"name":"empty"}"#,
                r#"{"name":"empty","only":"it"}"#,
            ]
        );
    }
}
