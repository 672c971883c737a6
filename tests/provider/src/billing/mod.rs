//! Prompt caches and bills, as the providers account for them.

mod automatic;
mod entries;
mod explicit;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::credential::Credential;
use automatic::Automatic;
use explicit::Explicit;

/// The maximum number of bills. Later credentials share one.
const MAX_BILLS: usize = 10_000;

/// A part of a prompt, in the provider's order.
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tokens: u64,
    /// The lifetime of a cached prefix that ends here. `None` without a cache marker.
    pub(crate) marker: Option<Lifetime>,
}

/// The lifetime of a cached prefix after its last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifetime {
    FiveMinutes,
    Hour,
}

impl Lifetime {
    fn time(self) -> Duration {
        match self {
            Self::FiveMinutes => Duration::from_mins(5),
            Self::Hour => Duration::from_hours(1),
        }
    }
}

/// The origin and the time of a billed request.
#[derive(Clone, Copy)]
pub(crate) struct Charge<'a> {
    pub(crate) credential: &'a Credential,
    pub(crate) model: &'a str,
    /// The time since the start of the provider.
    pub(crate) now: Duration,
    /// The output tokens.
    pub(crate) output: u64,
}

/// Tokens of one request by their price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) input: u64,
    pub(crate) read: u64,
    pub(crate) written_5m: u64,
    pub(crate) written_1h: u64,
    pub(crate) output: u64,
}

/// The bill of a credential. All fields except the last one are sums over its answered requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// The number of requests.
    pub requests: u64,
    /// The input tokens that are neither read from a cache nor written to one.
    pub input: u64,
    /// The tokens read from a cache.
    pub read: u64,
    /// The tokens written to a cache for five minutes.
    pub written_5m: u64,
    /// The tokens written to a cache for an hour.
    pub written_1h: u64,
    /// The output tokens.
    pub output: u64,
    /// The cost, in thousandths of the price of one input token.
    pub cost_milli: u64,
}

/// The prices of a model, in thousandths of the price of one input token.
struct Prices {
    read: u64,
    written_5m: u64,
    written_1h: u64,
    output: u64,
}

const INPUT: u64 = 1_000;
const MESSAGES: Prices = Prices {
    read: 100,
    written_5m: 1_250,
    written_1h: 2_000,
    output: 5_000,
};
/// The prices of OpenAI's models by the beginning of their names. The last row is for all others.
const OPENAI: [(&str, u64, u64); 5] = [
    ("gpt-5", 100, 8_000),
    ("gpt-4.1", 250, 4_000),
    ("o3", 250, 4_000),
    ("o4", 250, 4_000),
    ("", 500, 4_000),
];

fn openai_prices(model: &str) -> Prices {
    let row = OPENAI.iter().find(|(prefix, ..)| model.starts_with(prefix));
    let (_, read, output) = row.copied().unwrap_or(("", INPUT, INPUT));
    Prices {
        read,
        // OpenAI's caches have no price for writing.
        written_5m: INPUT,
        written_1h: INPUT,
        output,
    }
}

/// The caches and bills of all credentials.
#[derive(Default)]
pub(crate) struct Billing {
    explicit: Explicit,
    automatic: Automatic,
    bills: BTreeMap<Credential, Bill>,
}

impl Billing {
    /// Bills a request of the Messages API, whose markers decide about the cache.
    pub(crate) fn messages(&mut self, charge: &Charge<'_>, blocks: &[Block]) -> Counted {
        let counted = Counted {
            output: charge.output,
            ..self.explicit.look_up(charge, blocks)
        };
        self.add(charge, counted, &MESSAGES);
        counted
    }

    /// Bills a request of OpenAI, whose cache is automatic. `cache_key` is the request's `prompt_cache_key`.
    pub(crate) fn openai(
        &mut self,
        charge: &Charge<'_>,
        cache_key: &str,
        lifetime: Duration,
        blocks: &[Block],
    ) -> Counted {
        let total: u64 = blocks.iter().map(|block| block.tokens).sum();
        let read = self.automatic.look_up(charge, cache_key, lifetime, blocks);
        let counted = Counted {
            input: total - read,
            read,
            output: charge.output,
            ..Counted::default()
        };
        self.add(charge, counted, &openai_prices(charge.model));
        counted
    }

    /// Returns the bill of a credential.
    pub(crate) fn bill(&self, credential: &Credential) -> Bill {
        self.bills.get(credential).copied().unwrap_or_default()
    }

    /// Returns all bills.
    pub(crate) fn bills(&self) -> &BTreeMap<Credential, Bill> {
        &self.bills
    }

    fn add(&mut self, charge: &Charge<'_>, counted: Counted, prices: &Prices) {
        let is_full = self.bills.len() >= MAX_BILLS && !self.bills.contains_key(charge.credential);
        let credential = if is_full {
            Credential("others".to_owned())
        } else {
            charge.credential.clone()
        };
        let bill = self.bills.entry(credential).or_default();
        bill.requests += 1;
        bill.input += counted.input;
        bill.read += counted.read;
        bill.written_5m += counted.written_5m;
        bill.written_1h += counted.written_1h;
        bill.output += counted.output;
        bill.cost_milli += counted.input * INPUT
            + counted.read * prices.read
            + counted.written_5m * prices.written_5m
            + counted.written_1h * prices.written_1h
            + counted.output * prices.output;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Billing, Block, Charge, Lifetime};
    use crate::credential::Credential;

    #[test]
    fn a_bill_adds_the_prices_of_its_requests() {
        let credential = Credential::of_key("k");
        let charge = |model| Charge {
            credential: &credential,
            model,
            now: Duration::ZERO,
            output: 10,
        };
        let block = |marker| Block {
            bytes: vec![1],
            tokens: 2_000,
            marker,
        };
        let mut billing = Billing::default();
        let prompt = [block(Some(Lifetime::Hour)), block(None)];
        billing.messages(&charge("claude"), &prompt);
        billing.messages(&charge("claude"), &prompt);
        let bill = billing.bill(&credential);
        assert_eq!(
            (bill.input, bill.read, bill.written_1h),
            (4_000, 2_000, 2_000)
        );
        let cost = 4_000 * 1_000 + 2_000 * 100 + 2_000 * 2_000 + 20 * 5_000;
        assert_eq!(bill.cost_milli, cost);
        let lifetime = Duration::from_secs(1);
        billing.openai(&charge("gpt-5"), "", lifetime, &prompt);
        let bill = billing.bill(&credential);
        assert_eq!((bill.requests, bill.output), (3, 30));
        // The caches of both providers are separate, so OpenAI reads nothing of the same prompt.
        assert_eq!(bill.cost_milli, cost + 4_000 * 1_000 + 10 * 8_000);
        assert_eq!(billing.bill(&Credential::of_key("other")).requests, 0);
    }
}
