//! Checks the guarantees of views in random histories with [`InvariantChecker`].

use palimpsest_histories::{InvariantChecker, operation};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn p01_p09_views_are_valid_and_sealed_in_any_history(
        operations in prop::collection::vec(operation(), 1..24)
    ) {
        InvariantChecker::play(&operations);
    }
}
