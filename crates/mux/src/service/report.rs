//! Answers to commands: status, ports, drops and checks, as JSON in a file whose descriptor goes
//! with the message.

use std::os::fd::{AsFd as _, OwnedFd};

use packetio::mux::message::{Message, Query};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{self, Errno};
use serde_json::{Value, json};

use super::clients::ClientId;
use super::{End, Service};
use crate::plane::Plane;

impl<P: Plane> Service<P> {
    /// Answers a query.
    ///
    /// # Errors
    /// The reason why the connection must end.
    pub(super) fn answer(
        &mut self,
        id: ClientId,
        request: u32,
        query: Query,
    ) -> Result<(), &'static str> {
        let is_for_owner = matches!(query, Query::Check | Query::Stop);
        if is_for_owner && !self.is_owner(id) {
            self.refuse(id, request, Errno::PERM);
            return Ok(());
        }
        let value = match query {
            Query::Status => self.status(),
            Query::Ports => self.ports(),
            Query::Drops => self.drops(),
            Query::Check => self.checks(),
            Query::Stop => {
                self.end = Some(End::Remove);
                json!({"stopping": true, "interface": self.options.interface})
            }
        };
        let text = value.to_string();
        match file_of(text.as_bytes()) {
            Ok(file) => {
                let bytes = text.len() as u64;
                let answer = Message::Answer { request, bytes };
                self.send_with(id, &answer, Some(file.as_fd()));
            }
            Err(errno) => self.refuse(id, request, errno),
        }
        Ok(())
    }

    /// Whether a client is root's or the service's own user's.
    fn is_owner(&self, id: ClientId) -> bool {
        let uid = self.clients.get(&id).map(|client| client.peer.uid);
        uid == Some(0) || uid == Some(rustix::process::geteuid().as_raw())
    }

    /// The whole state. Counters of drops are there from their first drop on, and `drop_reasons`
    /// and `ingress_drop_reasons` name all that there may be.
    fn status(&self) -> Value {
        let link = self.mirror.host().link.as_ref();
        let ingress_drops = self.plane.ingress_drops();
        // Every context has the same ones, also one that does not exist.
        let drops = self.plane.traffic(0, 0).drops;
        let applications = self.applications.iter().map(|(&number, one)| {
            let traffic: Vec<Value> = one
                .cookies
                .keys()
                .map(|&context| {
                    let traffic = self.plane.traffic(number, context);
                    json!({
                        "context": context,
                        "rx_frames": traffic.rx_frames, "rx_bytes": traffic.rx_bytes,
                        "tx_frames": traffic.tx_frames, "tx_bytes": traffic.tx_bytes,
                        "bulk_frames": traffic.bulk_frames, "bulk_bytes": traffic.bulk_bytes,
                        "drops": named(&traffic.drops),
                    })
                })
                .collect();
            json!({
                "application": number, "name": one.name,
                "pid": one.peer.pid, "uid": one.peer.uid,
                "state": if one.is_lost() { "lost" } else { "connected" },
                "contexts": traffic,
                "ports": self.ports_of(number), "leases": self.leases_of(number),
            })
        });
        json!({
            "interface": self.options.interface,
            "mode": self.plane.mode(),
            "is_up": link.is_some_and(|link| link.is_up),
            "mac": link.and_then(|link| link.mac).map(|mac| mac.to_string()),
            "mtu": link.map(|link| link.mtu),
            "virtual_ports_max": self.options.ports,
            "applications": applications.collect::<Vec<_>>(),
            "drop_reasons": names(&drops),
            "ingress_drops": named(&ingress_drops),
            "ingress_drop_reasons": names(&ingress_drops),
            "next_hops_forgotten": self.silent_hops.forgotten,
        })
    }

    fn ports_of(&self, number: u16) -> Vec<Value> {
        let claims = self.ownership.claims();
        let claims = claims.filter(|(_, claim)| claim.application == number);
        claims
            .map(|(endpoint, claim)| json!({"endpoint": endpoint.to_string(), "contexts": claim.contexts}))
            .collect()
    }

    fn leases_of(&self, number: u16) -> Vec<Value> {
        let leases = self.ownership.leases();
        let leases = leases.filter(|lease| lease.application == number);
        leases
            .map(|lease| {
                let (first, last) = (lease.ports.start(), lease.ports.end());
                json!({"context": lease.context, "first": first, "last": last})
            })
            .collect()
    }

    fn ports(&self) -> Value {
        let all = self.applications.iter().map(|(&number, one)| {
            json!({
                "application": number, "name": one.name, "pid": one.peer.pid,
                "ports": self.ports_of(number), "leases": self.leases_of(number),
            })
        });
        Value::Array(all.collect())
    }

    fn drops(&self) -> Value {
        let applications = self.applications.iter().map(|(&number, one)| {
            let mut sums: Vec<(&'static str, u64)> = Vec::new();
            for &context in one.cookies.keys() {
                for (name, count) in self.plane.traffic(number, context).drops {
                    match sums.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, sum)) => *sum += count,
                        None => sums.push((name, count)),
                    }
                }
            }
            json!({"application": number, "name": one.name, "drops": named(&sums)})
        });
        json!({
            "applications": applications.collect::<Vec<_>>(),
            "ingress": named(&self.plane.ingress_drops()),
        })
    }

    fn checks(&mut self) -> Value {
        let link = self.mirror.host().link.as_ref();
        let link = match link {
            None => Err("the interface does not exist".to_owned()),
            Some(link) if !link.is_up => Err("the link is down".to_owned()),
            Some(_) => Ok(()),
        };
        let mut all = vec![(self.options.interface.clone(), link)];
        all.extend(self.plane.check());
        let all = all.into_iter().map(
            |(hop, outcome)| json!({"hop": hop, "ok": outcome.is_ok(), "cause": outcome.err()}),
        );
        Value::Array(all.collect())
    }
}

/// The names of counters.
fn names(counters: &[(&'static str, u64)]) -> Vec<&'static str> {
    counters.iter().map(|(name, _)| *name).collect()
}

/// Counters other than zero, by name.
fn named(counters: &[(&'static str, u64)]) -> Value {
    let counters = counters.iter().filter(|(_, count)| *count > 0);
    Value::Object(
        counters
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect(),
    )
}

fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("mill-mux-answer", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(file)
}
