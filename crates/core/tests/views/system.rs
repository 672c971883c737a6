//! System messages in views.

use expect_test::expect;
use palimpsest_core::view::Provider;

use crate::world::{check, check_for};

#[test]
fn system_messages_lead_or_become_reminders() {
    let conversation = "system: be kind
         user: go
         assistant: done
         system: be brief";
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
