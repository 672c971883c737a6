//! Compares the outputs of the clients with each other and with the scenario.

use std::collections::HashMap;

use serde_json::Value;

/// The expected outcome of each step, and the number of its checks.
pub(crate) struct Wanted(HashMap<String, (String, usize)>);

impl Wanted {
    /// Reads the expectations of a scenario.
    pub(crate) fn of(scenario: &str) -> Self {
        let scenario: Value = serde_json::from_str(scenario).unwrap();
        let step = |step: &Value| {
            let expect = step["expect"].as_str().unwrap_or("OK").to_owned();
            let checks = step["checks"].as_array().map_or(0, Vec::len);
            (text(&step["name"]), (expect, checks))
        };
        let steps = scenario["steps"].as_array().unwrap();
        let wanted: HashMap<_, _> = steps.iter().map(step).collect();
        assert_eq!(wanted.len(), steps.len(), "two steps share a name");
        Self(wanted)
    }

    /// Asserts that every step had the expected outcome and passed all checks of the client.
    #[track_caller]
    pub(crate) fn check(&self, language: &str, output: &str) {
        assert_eq!(output.lines().count(), self.0.len(), "{language}");
        for line in output.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let step = text(&line["step"]);
            let (expect, checks) = &self.0[&step];
            assert_eq!(
                &outcome(&line),
                expect,
                "{language}, {step}: {}",
                line["message"]
            );
            let held = line["checks"].as_array().map_or(&[][..], Vec::as_slice);
            assert_eq!(held, vec![Value::Bool(true); *checks], "{language}, {step}");
        }
    }
}

/// Returns the outcomes of the steps.
pub(crate) fn outcomes(output: &str) -> Vec<String> {
    let lines = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines.map(|line: Value| outcome(&line)).collect()
}

/// Returns the status, and the error reason if there is one.
fn outcome(line: &Value) -> String {
    let details = line["details"].as_array().into_iter().flatten();
    let reasons = details
        .filter(|detail| detail["type"] == "google.rpc.ErrorInfo")
        .map(|detail| text(&detail["value"]["reason"]));
    let words: Vec<_> = std::iter::once(text(&line["status"]))
        .chain(reasons)
        .collect();
    words.join(" ")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asserts that two outputs are equal. The panic message shows the first difference.
#[track_caller]
pub(crate) fn same((one, ones): (&str, &str), (other, others): (&str, &str)) {
    if ones == others {
        return;
    }
    for (mine, its) in ones.lines().zip(others.lines()) {
        let place = mine
            .bytes()
            .zip(its.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        if mine != its {
            let around = |line: &str| {
                let bytes =
                    &line.as_bytes()[place.saturating_sub(120)..(place + 120).min(line.len())];
                String::from_utf8_lossy(bytes).into_owned()
            };
            let step = serde_json::from_str::<Value>(mine).map(|line| text(&line["step"]));
            panic!(
                "step {}, byte {place}:\n{one}: …{}…\n{other}: …{}…",
                step.unwrap_or_default(),
                around(mine),
                around(its)
            );
        }
    }
    panic!("{one} and {other} do not have the same lines");
}
