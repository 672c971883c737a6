//! The comparison of a case that ran directly and through the gateway.

use palimpsest_fake_provider::Recorded;
use serde_json::Value;

/// The paths of requests with a conversation.
const CONVERSATIONS: [&str; 4] = [
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/chat/completions",
    "/v1/responses",
];

/// The outcome of a case on one way, as a program prints it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) case: String,
    /// The expected `x-palimpsest-body` of each response, or a word for several ones. `None` without a conversation.
    expects: Option<String>,
    /// The number of streams that the case aborts.
    pub(crate) aborts: u64,
    /// The header `x-palimpsest-body` of each response.
    bodies: Vec<Option<String>>,
    /// The result, or the error that the case did not expect.
    result: Result<Value, String>,
}

impl Line {
    pub(crate) fn parse(line: &str) -> Self {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let bodies = line["bodies"].as_array().unwrap();
        let failed = text(&line["failed"]);
        Self {
            case: text(&line["case"]).unwrap(),
            expects: text(&line["expects"]),
            aborts: line["aborts"].as_u64().unwrap(),
            bodies: bodies.iter().map(text).collect(),
            result: failed.map_or_else(|| Ok(line["result"].clone()), Err),
        }
    }

    /// Returns the header that identifies the requests of the case.
    pub(crate) fn header(&self) -> (String, String) {
        ("x-case".to_owned(), self.case.clone())
    }
}

/// Compares the outcomes of a case, and the requests that the provider of each way got. `normal` removes what differs
/// between the ways from a text.
pub(crate) fn check(
    direct: &Line,
    through: &Line,
    requests: &[Vec<&Recorded>; 2],
    normal: &dyn Fn(&str) -> String,
) -> Result<(), String> {
    assert_eq!(direct.case, through.case);
    let expects = through.expects.as_deref();
    let is_managed = expects == Some("managed");
    let mut results = Vec::new();
    for (way, line) in [("directly", direct), ("through the gateway", through)] {
        let result = line.result.as_ref();
        let mut result = result
            .map_err(|error| format!("failed {way}: {error}"))?
            .clone();
        normalize(&mut result, is_managed, normal);
        results.push(result);
    }
    if let Some(difference) = difference("result", &results[0], &results[1]) {
        return Err(difference);
    }
    if direct.bodies.iter().any(Option::is_some) {
        return Err("a direct response has a header of the gateway".to_owned());
    }
    let [to_direct, to_upstream] = requests;
    described_as_expected(through, to_upstream)?;
    if to_direct.is_empty() || to_direct.len() != to_upstream.len() {
        let (direct, through) = (to_direct.len(), to_upstream.len());
        return Err(format!(
            "{direct} requests directly, {through} through the gateway"
        ));
    }
    if is_managed {
        return fits_and_is_shorter(to_direct, to_upstream);
    }
    let [mut direct, mut through] = [to_direct, to_upstream].map(|requests| {
        let sent = requests.iter().map(|request| sent(request, normal));
        sent.collect::<Vec<_>>()
    });
    // Some cases send requests at the same time.
    direct.sort();
    through.sort();
    let mut pairs = direct.iter().zip(&through);
    match pairs.find(|(direct, through)| direct != through) {
        Some((direct, through)) => Err(format!(
            "upstream got other bytes:\n{direct}\n--- through the gateway:\n{through}"
        )),
        None => Ok(()),
    }
}

/// Checks the header `x-palimpsest-body` of all responses.
fn described_as_expected(line: &Line, upstream: &[&Recorded]) -> Result<(), String> {
    let bodies: Vec<&str> = line.bodies.iter().flatten().map(String::as_str).collect();
    let wrong = || Err(format!("{:?}: the bodies are {bodies:?}", line.expects));
    // A connection that upstream resets has no response.
    let answered = upstream.iter().filter(|request| request.status != 0);
    let conversations = answered.filter(|request| CONVERSATIONS.contains(&request.path.as_str()));
    if conversations.count() != bodies.len() {
        return wrong();
    }
    let is_right = match line.expects.as_deref() {
        None => bodies.is_empty(),
        Some("stateful") => {
            bodies.len() > 1
                && bodies[0] == "original"
                && bodies[1..].iter().all(|body| *body == "unmanaged")
        }
        Some("managed") => {
            bodies.first() == Some(&"original")
                && bodies.last() == Some(&"view")
                && bodies
                    .iter()
                    .all(|body| ["original", "view"].contains(body))
        }
        Some(expected) => !bodies.is_empty() && bodies.iter().all(|body| *body == expected),
    };
    if is_right { Ok(()) } else { wrong() }
}

/// Checks that upstream accepted all requests of a managed conversation, and that the last one is shorter than without
/// the gateway. The provider rejects any request above the window.
fn fits_and_is_shorter(direct: &[&Recorded], upstream: &[&Recorded]) -> Result<(), String> {
    if let Some(rejected) = upstream.iter().find(|request| request.status != 200) {
        return Err(format!(
            "upstream rejected a request with {}",
            rejected.status
        ));
    }
    let last = |requests: &[&Recorded]| requests.last().map_or(0, |request| request.raw.len());
    let (direct, through) = (last(direct), last(upstream));
    if 2 * through > direct {
        return Err(format!("the last request has {through} of {direct} bytes"));
    }
    Ok(())
}

/// Returns the bytes of a request without those that differ in each run.
fn sent(request: &Recorded, normal: &dyn Fn(&str) -> String) -> String {
    let head = String::from_utf8_lossy(&request.head);
    let head: String = head
        .lines()
        .filter(|line| !line.to_ascii_lowercase().starts_with("idempotency-key:"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    let body = String::from_utf8_lossy(&request.raw);
    let sent = normal(&format!("{} {head}{body}", request.status));
    // Each upload has a random boundary.
    match sent.split_once("boundary=") {
        None => sent,
        Some((_, rest)) => {
            let boundary = rest.lines().next().unwrap_or_default().to_owned();
            sent.replace(&boundary, "BOUNDARY")
        }
    }
}

/// Replaces the addresses in a text.
pub(crate) fn normal_text(text: &str, addresses: &[String]) -> String {
    let replaced = |text: String, address: &String| text.replace(address, "ADDRESS");
    addresses.iter().fold(text.to_owned(), replaced)
}

/// Removes what differs between the ways: dates, headers of the gateway, addresses, and the usage of a managed
/// conversation.
fn normalize(value: &mut Value, is_managed: bool, normal: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = normal(text),
        Value::Array(values) => {
            for value in values {
                normalize(value, is_managed, normal);
            }
        }
        Value::Object(fields) => {
            fields.retain(|name, _| {
                let is_usage = name == "usage" && is_managed;
                name != "date" && !name.starts_with("x-palimpsest-") && !is_usage
            });
            for value in fields.values_mut() {
                normalize(value, is_managed, normal);
            }
        }
        _ => {}
    }
}

/// Returns the first difference between two values.
fn difference(at: &str, direct: &Value, through: &Value) -> Option<String> {
    match (direct, through) {
        (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => one
            .iter()
            .zip(other.values())
            .find_map(|((name, one), other)| difference(&format!("{at}.{name}"), one, other)),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(index, (one, other))| difference(&format!("{at}[{index}]"), one, other)),
        _ if direct == through => None,
        _ => Some(format!(
            "{at} is {direct} directly and {through} through the gateway"
        )),
    }
}
