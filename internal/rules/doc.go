// Package rules reads documents of rules.
//
// A document is YAML, in one of two forms. The first has rules with names:
//
//	rules:
//	  - {name: login, limits: [15/1m, 50/24h]}
//	  - {name: login-ip, namespace: ip, limits: [100/1m], state: shadow} # on, shadow or off
//
// The second is what envoyproxy/ratelimit reads: a domain with nested descriptors. A file may have
// both, and several YAML documents, separated by lines of three dashes, for several domains.
//
// A file is read whole or refused whole, with all its mistakes and their lines and columns.
// The result is a [Document]: immutable, and so safe for concurrent use. A [Book] holds the
// current one, and readers take it once for each decision, so that no decision mixes two.
//
// It knows nothing of counting: whether a namespace reaches as far back as a window is checked by
// whoever knows the namespaces, see [Document.EachWindow].
package rules
