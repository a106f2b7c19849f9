// Package rules reads documents of rules.
//
// A document is YAML, in one of two forms. The first has named rules:
//
//	rules:
//	  - {name: login, limits: [15/1m, 50/24h]}
//	  - {name: login-ip, namespace: ip, limits: [100/1m], state: shadow} # on, shadow or off
//
// The second is the format of envoyproxy/ratelimit: a domain with nested descriptors. A file may
// have both, and several YAML documents, separated by lines of three dashes, for several domains.
//
// A file is accepted or refused as a whole. A refusal lists all mistakes with their lines and
// columns. The result is a [Document]: immutable, and so safe for concurrent use. A [Book] holds
// the current one, and readers take it once for each decision, so that no decision mixes two.
//
// The package knows nothing about counting: callers that know the namespaces check that each of
// them reaches as far back as its windows, see [Document.EachWindow].
package rules
