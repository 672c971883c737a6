//! Messages of the operator inside a conversation, which some models of Anthropic accept.

use serde_json::{Value, json};

use crate::agent::{Agent, Api};
use crate::world::{World, unmarked};

const BETA: &str = "mid-conversation-system-2026-04-07";

/// Adds a message of the operator.
fn note(agent: &mut Agent, text: &str) {
    let content = json!([{"type": "text", "text": text}]);
    let message = json!({"role": "system", "content": content});
    agent.conversation.push(message);
}

/// Returns the messages that upstream got last, without cache markers.
fn sent(world: &World) -> Vec<Value> {
    let request = world.upstream().pop().unwrap();
    assert_eq!(request.status, 200, "{request:?}");
    unmarked(&request.body)["messages"]
        .as_array()
        .unwrap()
        .clone()
}

fn texts(messages: &[Value], role: &str) -> Vec<String> {
    let own = messages.iter().filter(|message| message["role"] == role);
    own.map(|message| message["content"].to_string()).collect()
}

#[tokio::test]
async fn system_messages_stay_system_messages_in_a_view() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    let mut agent = Agent::new(Api::Messages, &world.url, Some("noted"));
    agent.betas = Some(BETA);
    agent.model = "claude-fake+agent=40+output-bytes=8000+window=200000".to_owned();
    agent.say("Run all rounds.");
    note(&mut agent, "note 0: the rounds begin");
    let session = "projects/default/sessions/noted";
    let (mut before, mut breaks, mut views) = (Vec::new(), 0, 0);
    for round in 1.. {
        let (reply, has_calls) = agent.step().await;
        let messages = sent(&world);
        let is_view = reply.header("x-palimpsest-body") == Some("view");
        views += usize::from(is_view);
        // The provider accepts the array, and no note has become a text of the user.
        assert!(
            !json!(messages).to_string().contains("system-reminder"),
            "{messages:#?}"
        );
        assert!(
            !texts(&messages, "system").is_empty(),
            "round {round}: {messages:#?}"
        );
        breaks += usize::from(!messages.starts_with(&before));
        before = messages;
        if !has_calls {
            break;
        }
        note(
            &mut agent,
            &format!("note {round}: {round} rounds are done"),
        );
    }
    let compactions = world.compactions(session).await;
    assert!(
        compactions > 1 && views > 10,
        "{compactions} compactions, {views} views"
    );
    assert_eq!(
        breaks, compactions,
        "each prompt begins with the one before it, except after a compaction"
    );
    // The newest notes are in the last view, each once.
    let last = texts(&before, "system").join(" ");
    assert_eq!(last.matches("note 39:").count(), 1, "{last}");
    // The view of a request without such messages has none, because its client may not have the beta.
    let notes = |message: &Value| message["role"] != "system";
    agent.conversation.retain(notes);
    agent.betas = None;
    agent.say("Go on.");
    agent.step().await;
    let messages = sent(&world);
    assert!(texts(&messages, "system").is_empty(), "{messages:#?}");
}

#[tokio::test]
async fn an_unchanged_conversation_with_system_messages_leaves_as_it_came() {
    let world = World::start(&[]).await;
    let mut agent = Agent::new(Api::Messages, &world.url, Some("unchanged-notes"));
    agent.betas = Some("mid-conversation-system-2026-04-07,per-turn-control-2026-07-01");
    for round in 0..3 {
        agent.say(&format!("Question {round}."));
        note(&mut agent, &format!("note {round}"));
        if round == 1 {
            let effort =
                json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
            agent.conversation.push(effort);
        }
        let body = agent.body().to_string();
        let (reply, _) = agent.step().await;
        assert_eq!(
            reply.header("x-palimpsest-body"),
            Some("original"),
            "{reply:?}"
        );
        assert_eq!(world.upstream().pop().unwrap().raw, body.as_bytes());
    }
}
