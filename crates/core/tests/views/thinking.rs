//! Thinking in views: the models to which it is returned, and thinking at the end of a response.

use expect_test::expect;
use palimpsest_core::view::Provider;

use crate::world::{check, check_for};

#[test]
fn p16_thinking_is_returned_verbatim_to_its_model_only() {
    let conversation = "user: go
         assistant: thinks deeply; call a
         user: result a 1";
    check(
        conversation,
        expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"thinking","thinking":"deeply","signature":"s"}
          {"type":"tool_use","id":"a","name":"t","input":{}}
        user
          {"type":"tool_result","tool_use_id":"a","content":"1"}
    "#]],
    );
    // A signature is valid only for the model that wrote the thinking.
    check_for(
        Provider::Anthropic,
        "other",
        conversation,
        expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"tool_use","id":"a","name":"t","input":{}}
        user
          {"type":"tool_result","tool_use_id":"a","content":"1"}
    "#]],
    );
    // Chat Completions has no thinking blocks.
    check_for(
        Provider::OpenAi,
        "m",
        conversation,
        expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}
        tool
          {"tool_call_id":"a","content":"1"}
    "#]],
    );
}

#[test]
fn trailing_thinking_waits_and_is_dropped_after_user_input() {
    // A further fragment can follow, so the thinking stays pending.
    check(
        "user: go
         assistant#r: thinks hm",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            unsendable: EndsWithAssistant
        "#]],
    );
    // The user input ends the response, so no block can follow the thinking.
    check(
        "user: go
         assistant#r: thinks hm
         ----
         user: never mind",
        expect![[r#"
            user
              {"type":"text","text":"go"}
              {"type":"text","text":"never mind"}
            repair 2.0: TrailingThinking
        "#]],
    );
    // The thinking was pending when the next fragment came, so both are one message.
    check(
        "user: go
         assistant#r: thinks hm
         ----
         assistant#r: here it is
         user: thanks",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"thinking","thinking":"hm","signature":"s"}
              {"type":"text","text":"here it is"}
            user
              {"type":"text","text":"thanks"}
        "#]],
    );
}
