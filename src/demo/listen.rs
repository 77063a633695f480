//! `subscriptions/listen`: a stream that acknowledges what it will deliver and then tells of changes until it
//! ends.
//!
//! Every message carries the subscription's id, which is the id of the request. The stream ends when the
//! client closes it, or with the request's result when the server stops.
//!
//! Invariants: the acknowledgement comes first; a change made after the subscription was opened is never
//! lost: one that falls behind by more changes than the channel keeps is told that everything it listens to
//! changed.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::http::event;
use super::rpc::{self, RpcFault};

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const RESOURCE_SUBSCRIPTIONS_MAX: usize = 100;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Those of the resources that a call changed, or that a subscription listens to: the part of the client's filter that the
/// server can honour.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ResourceSet {
    /// Whether `resources/list` is one of them.
    pub(super) resource_list: bool,
    pub(super) uris: Vec<String>,
}

impl ResourceSet {
    /// Reads `params.notifications`, keeping the resource list where `lists_change` and the URIs that `can_change`.
    ///
    /// No demo server changes its tools or prompts, so these are never honoured.
    pub(super) fn read_filter(
        params: &Map<String, Value>,
        lists_change: bool,
        can_change: impl Fn(&str) -> bool,
    ) -> Result<Self, RpcFault> {
        let invalid = |message: &str| Err(RpcFault::invalid_params(format!("params.notifications{message}")));
        let Some(Value::Object(wanted)) = params.get("notifications") else {
            return invalid(" must be an object");
        };
        for name in ["toolsListChanged", "promptsListChanged", "resourcesListChanged"] {
            if wanted.get(name).is_some_and(|value| !value.is_boolean()) {
                return invalid(&format!(".{name} must be a boolean"));
            }
        }
        let items = match wanted.get("resourceSubscriptions") {
            None => &[][..],
            Some(Value::Array(items)) if items.len() <= RESOURCE_SUBSCRIPTIONS_MAX => items,
            Some(_) => {
                let most = RESOURCE_SUBSCRIPTIONS_MAX;
                return invalid(&format!(".resourceSubscriptions must be an array of at most {most} URIs"));
            }
        };
        let Some(uris) = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>() else {
            return invalid(".resourceSubscriptions must be strings");
        };
        let uris = uris.into_iter().filter(|uri| can_change(uri)).map(str::to_owned).collect();
        let resource_list = lists_change && wanted.get("resourcesListChanged") == Some(&Value::Bool(true));
        Ok(Self { resource_list, uris })
    }

    /// The filter, as the acknowledgement repeats it.
    fn acknowledged(&self) -> Value {
        let mut honoured = json!({});
        if self.resource_list {
            honoured["resourcesListChanged"] = json!(true);
        }
        if !self.uris.is_empty() {
            honoured["resourceSubscriptions"] = json!(self.uris);
        }
        honoured
    }

    /// The part of `change` that the filter lets through.
    fn select(&self, change: &Self) -> Self {
        let uris = self.uris.iter().filter(|uri| change.uris.contains(uri)).cloned().collect();
        Self { resource_list: self.resource_list && change.resource_list, uris }
    }
}

pub(super) struct Subscription {
    pub(super) id: Value,
    pub(super) filter: ResourceSet,
    /// Opened before the reply starts, so that no change falls between.
    pub(super) changes: broadcast::Receiver<ResourceSet>,
    /// The result that ends the stream when the server stops.
    pub(super) result: Value,
    pub(super) stop: CancellationToken,
}

impl Subscription {
    /// The stream's events, keep-alive comments included.
    pub(super) fn into_events(self) -> impl Stream<Item = Bytes> + Send {
        let honoured = ("notifications", self.filter.acknowledged());
        let acknowledgement = self.notification("subscriptions/acknowledged", Some(honoured));
        let rest = stream::unfold(Some(self), |open| async move { Some(open?.next().await) });
        stream::once(ready(acknowledgement)).chain(rest)
    }

    /// The next bytes, and the subscription unless they are its last.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        loop {
            let change = tokio::select! {
                () = self.stop.cancelled() => return (self.end(), None),
                () = tokio::time::sleep(KEEP_ALIVE) => return (Bytes::from_static(b":\n\n"), Some(self)),
                change = self.changes.recv() => change,
            };
            let change = match change {
                Ok(change) => self.filter.select(&change),
                Err(RecvError::Lagged(_)) => self.filter.clone(),
                Err(RecvError::Closed) => return (self.end(), None),
            };
            if change != ResourceSet::default() {
                return (self.notices(change), Some(self));
            }
        }
    }

    fn notices(&self, change: ResourceSet) -> Bytes {
        let list = change.resource_list.then(|| self.notification("resources/list_changed", None));
        let resources = change
            .uris
            .into_iter()
            .map(|uri| self.notification("resources/updated", Some(("uri", Value::String(uri)))));
        Bytes::from(list.into_iter().chain(resources).collect::<Vec<_>>().concat())
    }

    fn end(&self) -> Bytes {
        let mut result = self.result.clone();
        result["_meta"][SUBSCRIPTION_ID] = self.id.clone();
        event(&rpc::result_message(Some(&self.id), &result))
    }

    fn notification(&self, method: &str, param: Option<(&str, Value)>) -> Bytes {
        let mut params = json!({ "_meta": { SUBSCRIPTION_ID: self.id } });
        if let Some((name, value)) = param {
            params[name] = value;
        }
        event(&rpc::notification(&format!("notifications/{method}"), &params))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(notifications: Value) -> Option<ResourceSet> {
        let params = Map::from_iter([("notifications".to_owned(), notifications)]);
        ResourceSet::read_filter(&params, true, |uri| uri.starts_with("note:")).ok()
    }

    #[test]
    fn only_what_can_be_honoured_is_acknowledged() {
        let cases = [
            (json!({}), Some(json!({}))),
            (json!({ "toolsListChanged": true, "promptsListChanged": true }), Some(json!({}))),
            (json!({ "resourcesListChanged": false }), Some(json!({}))),
            (json!({ "resourcesListChanged": true }), Some(json!({ "resourcesListChanged": true }))),
            (
                json!({ "resourceSubscriptions": ["note://1", "file:///a"] }),
                Some(json!({ "resourceSubscriptions": ["note://1"] })),
            ),
            (json!([]), None),
            (json!({ "toolsListChanged": 1 }), None),
            (json!({ "resourceSubscriptions": "note://1" }), None),
            (json!({ "resourceSubscriptions": [1] }), None),
            (json!({ "resourceSubscriptions": vec!["note://1"; RESOURCE_SUBSCRIPTIONS_MAX + 1] }), None),
        ];
        for (notifications, expected) in cases {
            let acknowledged = filter(notifications.clone()).map(|filter| filter.acknowledged());
            assert_eq!(acknowledged, expected, "{notifications}");
        }
    }

    #[tokio::test]
    async fn a_subscription_that_fell_behind_is_told_that_everything_changed() {
        let (sender, changes) = broadcast::channel(1);
        let filter =
            filter(json!({ "resourcesListChanged": true, "resourceSubscriptions": ["note://7"] })).unwrap();
        let stop = CancellationToken::new();
        let subscription =
            Subscription { id: json!(4), filter, changes, result: json!({ "_meta": {} }), stop };
        for _ in 0..3 {
            sender.send(ResourceSet { resource_list: false, uris: vec!["note://1".to_owned()] }).unwrap();
        }

        let events: Vec<Bytes> = subscription.into_events().take(2).collect().await;

        let text = String::from_utf8(events.concat()).unwrap();
        assert!(text.contains("notifications/resources/list_changed"), "{text}");
        assert!(text.contains("note://7"), "{text}");
    }
}
