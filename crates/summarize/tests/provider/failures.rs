//! Tests of retries, waits, deadlines and limits over real connections. The waits themselves are
//! unit-tested with paused time.

use std::time::Duration;

use palimpsest_fake_provider::{Behaviour, FakeProvider};
use palimpsest_summarize::{Anthropic, Error, Summarizer};
use tokio::time::Instant;

use crate::{anthropic, endpoint, openai, small, statuses};

#[tokio::test]
async fn transient_failures_are_retried() {
    let provider = FakeProvider::start().await.unwrap();
    for model in [
        "c+status=529+times=2",
        "c+status=500+times=1",
        "c+status=429+times=3",
        "c+drop+times=2",
    ] {
        anthropic(&provider, model)
            .summarize(&small())
            .await
            .unwrap();
        openai(&provider, &format!("{model}+delay=0"))
            .summarize(&small())
            .await
            .unwrap();
    }
    // Each of the two clients gets two, one and three statuses of failures. A dropped connection is recorded with the
    // status of its answer, 200.
    assert_eq!(
        statuses(&provider)
            .iter()
            .filter(|status| **status != 200)
            .count(),
        12
    );
}

#[tokio::test]
async fn attempts_are_bounded() {
    let provider = FakeProvider::start().await.unwrap();
    let error = anthropic(&provider, "c+status=529")
        .summarize(&small())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("529, overloaded_error, Overloaded"),
        "{error}"
    );
    assert_eq!(statuses(&provider), [529; 4]);
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    let provider = FakeProvider::start().await.unwrap();
    for (model, name) in [
        ("no-such-model", "bad_request"),
        ("c+status=401", "auth"),
        ("c+status=403", "auth"),
    ] {
        let error = anthropic(&provider, model)
            .summarize(&small())
            .await
            .unwrap_err();
        assert_eq!(error.name(), name, "{error}");
    }
    assert_eq!(statuses(&provider), [404, 401, 403]);
}

#[tokio::test]
async fn the_retry_delay_of_the_provider_is_respected() {
    let provider = FakeProvider::start().await.unwrap();
    let start = Instant::now();
    let client = anthropic(&provider, "c+status=429+retry-after-ms=300+times=1");
    client.summarize(&small()).await.unwrap();
    assert!(
        start.elapsed() >= Duration::from_millis(300),
        "{:?}",
        start.elapsed()
    );

    let start = Instant::now();
    let client = openai(&provider, "c+status=429+retry-after=1+times=1");
    client.summarize(&small()).await.unwrap();
    assert!(
        start.elapsed() >= Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn no_request_exceeds_the_deadline() {
    let provider = FakeProvider::start().await.unwrap();
    // A wait that would end after the deadline is not started.
    let start = Instant::now();
    let client = anthropic(&provider, "c+status=429+retry-after=600");
    let Err(Error::Unavailable { retry_after, .. }) = client.summarize(&small()).await else {
        panic!("unavailable");
    };
    assert_eq!(retry_after, Some(Duration::from_mins(10)));
    // A call in flight is cancelled at the deadline.
    let mut asked = small();
    asked.deadline = Instant::now() + Duration::from_millis(200);
    let late = anthropic(&provider, "c+delay=600000")
        .summarize(&asked)
        .await
        .unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    // Without the deadline, the first wait takes ten minutes, and the call ends at its own limit of five.
    assert!(start.elapsed() < Duration::from_mins(4));
    // The last response allows no further attempt, although the call limit is longer.
    assert_eq!(
        statuses(&provider).len(),
        1,
        "the second request was cancelled before its response"
    );
}

#[tokio::test]
async fn a_single_call_times_out() {
    let provider = FakeProvider::start().await.unwrap();
    let mut endpoint = endpoint(&provider.url(), "c+delay=30000");
    endpoint.http.call_timeout = Duration::from_millis(100);
    let late = Anthropic::new(endpoint)
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(
        late,
        Error::Timeout {
            after: Duration::from_millis(100)
        }
    );
}

#[tokio::test]
async fn a_reply_above_the_maximum_size_is_rejected() {
    let provider = FakeProvider::start().await.unwrap();
    let long = "word ".repeat(700);
    // The second answer is for a retry, which must not happen: the same request would get the same large reply.
    provider.script("c", [Behaviour::Say(long.clone()), Behaviour::Say(long)]);
    let mut endpoint = endpoint(&provider.url(), "c");
    endpoint.http.max_reply_bytes = 2_000;
    let error = Anthropic::new(endpoint)
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("more than 2000 bytes"),
        "{error}"
    );
    assert_eq!(statuses(&provider), [200]);
}

#[tokio::test]
async fn an_unreachable_endpoint_is_unavailable() {
    let gone = FakeProvider::start().await.unwrap();
    let url = gone.url();
    drop(gone);
    // The listener closes when the runtime drops the aborted server task.
    tokio::task::yield_now().await;
    let mut endpoint = endpoint(&url, "c");
    endpoint.retry.attempts = 2;
    let error = Anthropic::new(endpoint)
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(error.name(), "unavailable", "{error}");
}

#[tokio::test]
async fn an_html_page_is_not_accepted_as_a_reply() {
    let provider = FakeProvider::start().await.unwrap();
    let error = anthropic(&provider, "c+ptl=proxy")
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(error.name(), "prompt_too_long");
    let elsewhere = endpoint(&format!("{}/elsewhere", provider.url()), "c");
    let error = Anthropic::new(elsewhere)
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("base URL"), "{error}");
}

#[tokio::test]
async fn a_redirect_does_not_receive_the_key() {
    let provider = FakeProvider::start().await.unwrap();
    let error = anthropic(&provider, "c+redirect")
        .summarize(&small())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("307"), "{error}");
    assert_eq!(statuses(&provider), [307]);
}
