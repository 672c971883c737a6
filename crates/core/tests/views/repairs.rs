//! Content that a provider would reject, and its repairs.

use expect_test::expect;

use palimpsest_core::view::Provider;

use crate::world::{check, show_for};

#[test]
fn orphaned_duplicate_and_blank_blocks_are_repaired() {
    // `a` has two results, and no call has the id `zz`.
    check(
        "user: go; blank
         assistant: call a
         user: result a 1; result a 2; result zz 3",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"text","text":"[Result of a tool call that is not shown]\n3"}
            repair 1.1: BlankText
            repair 3.1: DuplicateResult(c0)
            repair 3.2: OrphanResult
        "#]],
    );
}

#[test]
fn a_reused_id_is_mapped_and_stays_mapped() {
    // Ids are unique in an array, so the second call and its result get the same id of the service.
    check(
        "user: go
         assistant: call a
         user: result a 1
         ----
         assistant: call a
         user: result a 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"tool_use","id":"palimpsest_c1","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"palimpsest_c1","content":"2"}
            repair 4.0: MappedCallId(c1)
        "#]],
    );
}

#[test]
fn a_long_tool_name_is_cut_to_the_maximum_of_the_provider() {
    let name = "n".repeat(129);
    let conversation = format!("user: go\nassistant: call a {name}\nuser: result a 1");
    // Anthropic and OpenAI's Responses API accept 128 characters, and Chat Completions 64.
    for (provider, max) in [
        (Provider::Anthropic, 128),
        (Provider::OpenAiResponses, 128),
        (Provider::OpenAi, 64),
    ] {
        let view = show_for(provider, "m", &conversation);
        let shown = format!("\"{}\"", "n".repeat(max));
        assert!(view.contains(&shown), "{view}");
    }
}

#[test]
fn a_leading_assistant_message_gets_an_opening_user_message() {
    check(
        "assistant: hello
         user: hi",
        expect![[r#"
            user
              {"type":"text","text":"[The conversation begins with the assistant.]"}
            assistant
              {"type":"text","text":"hello"}
            user
              {"type":"text","text":"hi"}
            repair 1.0: Opening
        "#]],
    );
}
