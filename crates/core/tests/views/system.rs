//! System messages in views.

use expect_test::expect;
use palimpsest_core::view::{Provider, Target};

use crate::world::{check, check_for, show_in};

/// A target that takes system messages inside the array.
fn with_system(provider: Provider) -> Target {
    Target {
        provider,
        model: "m".into(),
        thinking: true,
        system_messages: true,
    }
}

#[test]
fn system_messages_lead_or_become_reminders() {
    let conversation = "system: be kind
         user: go
         assistant: done
         system: be brief";
    // Without system messages inside the array, Anthropic's APIs get a later one as a text of the user.
    check(
        conversation,
        expect![[r#"
        system
          {"type":"text","text":"be kind"}
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"text","text":"done"}
        user
          {"type":"text","text":"<system-reminder>\nbe brief\n</system-reminder>"}
    "#]],
    );
    // Chat Completions accepts system messages at every place.
    check_for(
        Provider::OpenAi,
        "m",
        conversation,
        expect![[r#"
        system
          {"type":"text","text":"be kind"}
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"text","text":"done"}
        system
          {"type":"text","text":"be brief"}
    "#]],
    );
}

#[test]
fn system_messages_keep_their_role_where_the_target_takes_them() {
    // Operator messages end a turn, so `be fast` follows `and more`, although it was served before.
    let conversation = "system: be kind
         user: go
         system: be brief
         system: be exact
         assistant: done
         user: more
         system: be fast
         ----
         user: and more";
    expect![[r#"
        system
          {"type":"text","text":"be kind"}
        user
          {"type":"text","text":"go"}
        operator
          {"type":"text","text":"be brief"}
        operator
          {"type":"text","text":"be exact"}
        assistant
          {"type":"text","text":"done"}
        user
          {"type":"text","text":"more"}
          {"type":"text","text":"and more"}
        operator
          {"type":"text","text":"be fast"}
    "#]]
    .assert_eq(&show_in(&with_system(Provider::Anthropic), conversation));
    // Bedrock has no such messages.
    let bedrock = show_in(&with_system(Provider::Bedrock), conversation);
    assert!(
        bedrock.contains("<system-reminder>") && !bedrock.contains("operator"),
        "{bedrock}"
    );
}

#[test]
fn a_system_message_without_a_message_of_the_user_before_it_is_a_reminder() {
    // A `system` message may not follow one of the model, so `be brief` becomes a text of the user.
    let conversation = "user: go
         assistant: done
         system: be brief
         user: more
         system: be fast";
    expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"text","text":"done"}
        user
          {"type":"text","text":"<system-reminder>\nbe brief\n</system-reminder>"}
          {"type":"text","text":"more"}
        operator
          {"type":"text","text":"be fast"}
    "#]]
    .assert_eq(&show_in(&with_system(Provider::Anthropic), conversation));
}
