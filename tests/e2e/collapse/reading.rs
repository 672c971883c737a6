//! Tests that collapsed content is listed, read in parts and found.

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::{
    CallToolRequest, Format, ListMessagesRequest, MessageFilter, ModelToolPolicy, Payload, Policy,
    TranscriptMessage, Visibility,
};
use palimpsest_tests::refused;
use palimpsest_tests::say::{anthropic, result, user, uuid, with_id};
use serde_json::{Value, json};
use tonic::Code;

use super::{Agent, ids, policy, turn};
use crate::SERVER;

const MAX_ANSWER_BYTES: u32 = 4_000;

fn with_short_answers() -> Policy {
    Policy {
        model_tools: Some(ModelToolPolicy {
            max_answer_bytes: Some(MAX_ANSWER_BYTES),
            ..ModelToolPolicy::default()
        }),
        ..policy()
    }
}

impl Agent {
    /// Calls a tool. Returns the output and true if it is an error.
    async fn call(&mut self, tool: &str, input: &Value) -> (String, bool) {
        let block = json!({"type": "tool_use", "id": "tu_1", "name": tool, "input": input});
        let request = CallToolRequest {
            session: self.session.clone(),
            call: Some(Call::Payload(Payload {
                format: Format::AnthropicMessages.into(),
                json: block.to_string().into(),
            })),
            ..CallToolRequest::default()
        };
        let reply = self.client.call_tool(request).await.unwrap().into_inner();
        let answer: Value = serde_json::from_slice(&reply.tool_result_json).unwrap();
        let text = answer["content"].as_str().unwrap().to_owned();
        assert!(text.len() <= MAX_ANSWER_BYTES as usize, "{}", text.len());
        (text, answer["is_error"] == true)
    }
}

/// Returns the text between two markers.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap();
    rest.split_once(after).unwrap().0
}

#[tokio::test]
async fn p12_a_collapsed_span_is_listed_and_read_in_pages() {
    let shared = SERVER.get();
    let mut agent = Agent::with_policy(&shared.0, "read-span", with_short_answers()).await;
    agent.staged().await;
    let span = agent.folded(agent.fold_one()).await.remove(0);
    let id = span.collapse_id;
    let of_span = MessageFilter {
        collapse_id: id.clone(),
        ..MessageFilter::default()
    };
    let listed = agent.list(of_span.clone()).await;
    let found: Vec<_> = listed.iter().map(|message| message.id.clone()).collect();
    assert_eq!(found, ids(1, 1..9));
    let stands = |message: &TranscriptMessage| message.visibility() == Visibility::Collapsed;
    assert!(listed.iter().all(stands), "{listed:?}");

    // Reads all pages, whatever the size limit of an answer.
    let (mut input, mut read, mut pages) = (json!({"collapse_id": id}), String::new(), 0);
    loop {
        let (page, is_error) = agent.call("ReadTranscript", &input).await;
        assert!(!is_error, "{page}");
        pages += 1;
        let Some((text, note)) = page.rsplit_once("[cut: ask again with collapse_id ") else {
            read.push_str(&page);
            break;
        };
        read.push_str(text);
        let first: u64 = between(note, "and first ", "]").parse().unwrap();
        input = json!({"collapse_id": id, "first": first});
    }
    assert!(pages > 1, "{read}");
    for message in ids(1, 1..9) {
        assert_eq!(read.matches(&message).count(), 1, "{message}: {read}");
    }
    for round in 0..4 {
        assert!(read.contains(&format!("/src/t1r{round}.rs")), "{read}");
        let said = format!("fn of_t1r{round}() stands here.");
        assert!(read.contains(&said), "{read}");
        // A long result is read with the other tool.
        let more = json!({"tool_use_id": format!("t1r{round}"), "first_line": 1});
        let (whole, _) = agent.call("ReadToolResult", &more).await;
        assert_eq!(
            whole.trim_end(),
            said.clone() + &format!(" {said}").repeat(59)
        );
    }

    // Searches find content that is not in the view.
    let search = json!({"pattern": "of_t1r2"});
    let (hits, _) = agent.call("SearchTranscript", &search).await;
    let number = between(&hits, "[", "]").parse::<u64>().unwrap();
    let (read, _) = agent
        .call("ReadTranscript", &json!({"first": number}))
        .await;
    assert!(read.contains("fn of_t1r2() stands here."), "{read}");
}

#[tokio::test]
async fn a_long_collapsed_message_is_read_by_offset() {
    let shared = SERVER.get();
    let mut agent = Agent::with_policy(&shared.0, "read-offset", with_short_answers()).await;
    let call = json!({"type": "tool_use", "id": "long", "name": "Read", "input": {"path": "/é"}});
    // Each phrase begins with a character of two bytes. A cut inside such a character would damage the text.
    let words = json!({"type": "text", "text": "é is a letter, and so on; ".repeat(500)});
    let says = anthropic(&json!({"role": "assistant", "content": [words, call]}));
    let mut said = turn(1, 0, false);
    said.push(with_id(&uuid(101), says));
    said.push(with_id(&uuid(102), result("long", "short")));
    said.extend(turn(2, 0, false));
    agent.prepare_and_stage(said).await;
    let mut all = agent.fold();
    all.target_tokens = Some(0);
    let span = agent.folded(all).await.remove(0);
    assert_eq!(span.messages, 2);
    // Within an outline the message is cut, and the outline names the tool call for the rest.
    let (outline, _) = agent
        .call("ReadTranscript", &json!({"collapse_id": span.collapse_id}))
        .await;
    assert!(
        outline.contains(&format!("ReadTranscript with message_id \"{}\"", uuid(101))),
        "{outline}"
    );
    let (mut offset, mut read) = (0_u64, String::new());
    loop {
        let input = json!({"message_id": uuid(101), "offset": offset});
        let (page, is_error) = agent.call("ReadTranscript", &input).await;
        assert!(!is_error, "{page}");
        let Some((text, note)) = page.rsplit_once("\n[cut: ask again with message_id ") else {
            read.push_str(&page);
            break;
        };
        read.push_str(text);
        let next = between(note, "and offset ", "]").parse().unwrap();
        assert!(next > offset, "{note}");
        offset = next;
    }
    assert!(
        read.contains(&"é is a letter, and so on; ".repeat(500)),
        "{read}"
    );
    // A read past the end is empty and not an error.
    let past = json!({"message_id": uuid(101), "offset": 1_000_000});
    let (text, _) = agent.call("ReadTranscript", &past).await;
    assert!(!text.contains("[cut"), "{text}");
}

#[tokio::test]
async fn unknown_spans_are_rejected_by_id() {
    let shared = SERVER.get();
    let mut agent = Agent::with_policy(&shared.0, "read-none", with_short_answers()).await;
    let staged = agent.staged().await;
    let mut other = Agent::new(&shared.0, "read-other").await;
    other.prepare(vec![user("hello")]).await;
    agent.folded(agent.fold_one()).await;
    let first = staged[0].collapse_id.clone();
    // A staged span is not collapsed yet, and other sessions do not have the span.
    let wrong = [
        ("agent", staged[1].collapse_id.clone()),
        ("agent", "nonsense".into()),
        ("agent", "s999".into()),
        ("other", first),
    ];
    for (whose, id) in wrong {
        let agent = if whose == "agent" {
            &mut agent
        } else {
            &mut other
        };
        let filter = MessageFilter {
            collapse_id: id.clone(),
            ..MessageFilter::default()
        };
        let request = ListMessagesRequest {
            session: agent.session.clone(),
            filter: Some(filter),
            ..ListMessagesRequest::default()
        };
        let status = agent.sessions.list_messages(request).await.unwrap_err();
        let metadata = refused(&status, Code::NotFound, "COLLAPSE_NOT_FOUND");
        assert_eq!(metadata["collapse_id"], id);
        let (text, is_error) = agent
            .call("ReadTranscript", &json!({"collapse_id": id}))
            .await;
        assert!(is_error && text.contains("no"), "{text}");
    }
}
