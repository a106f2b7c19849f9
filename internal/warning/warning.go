package warning

import "fmt"

// Code names a kind of warning.
type Code string

// The codes of all warnings.
const (
	CoarseWindow         Code = "coarse-window"
	SharedCounts         Code = "shared-counts"
	NeverRefuses         Code = "never-refuses"
	DeadWildcard         Code = "dead-wildcard"
	OverrideNeverMatches Code = "override-never-matches"
	SecretKey            Code = "secret-key"
	NoKeySource          Code = "no-key-source"
	UnknownNamespace     Code = "unknown-namespace"
	UnknownDomain        Code = "unknown-domain"
	OverrideShortened    Code = "override-shortened"
	OverrideIgnored      Code = "override-ignored"
	UnknownVariable      Code = "unknown-variable"
	NoEffect             Code = "no-effect"
	RefusesNothing       Code = "refuses-nothing"
	TrustsEverybody      Code = "trusts-everybody"
	ForwardedUntrusted   Code = "forwarded-untrusted"
	ForwardedMissing     Code = "forwarded-missing"
	ForwardedMalformed   Code = "forwarded-malformed"
	FileUnusable         Code = "file-unusable"
	JoinsItself          Code = "joins-itself"
	UnmetNode            Code = "unmet-node"
	ZonesDiffer          Code = "zones-differ"
)

// Warning is a setting, a rule or a kind of request that probably does not work as intended.
type Warning struct {
	Code Code `json:"code"`
	// At is the place: FILE:LINE:COLUMN, a flag, a variable, or a common trait of the requests.
	At string `json:"at"`
	// Reason is the actual effect, and Instead the suggested spelling.
	Reason  string `json:"reason"`
	Instead string `json:"instead"`
}

// String returns the warning on one line.
func (w Warning) String() string {
	return fmt.Sprintf("%s: %s: %s; instead: %s", w.At, w.Code, w.Reason, w.Instead)
}

// Observed returns the warning of that code for requests.
func Observed(code Code, at string) Warning {
	reason, instead := observed(code)
	return Warning{Code: code, At: at, Reason: reason, Instead: instead}
}

// observed returns the text of a warning that only requests trigger.
func observed(code Code) (reason, instead string) {
	switch code {
	case CoarseWindow:
		return "requests limit a window of fewer than ten buckets: an event counts for up to a " +
				"bucket too long, so steady traffic below the limit is refused",
			"ask for a window of ten buckets or more, or give the namespace a ladder with a " +
				"finer level"
	case SecretKey:
		return "the value is in Redis, /v1/top and the decision log as it is, and it may be a " +
				"credential",
			"leave plain: out, so that the value is hashed"
	case NoKeySource:
		return "requests have none of these sources: all such requests share one key",
			"have the proxy forward what the key names, and add ip as the last source"
	case UnknownDomain:
		return "Envoy asks for a domain that no rule has, so nothing limits its requests",
			"give the document of rules this domain, or Envoy's filter one that the document has"
	case OverrideShortened:
		return "Envoy sends limits with a unit longer than the ladder of the namespace: they are " +
				"judged in the longest unit that it covers, so more passes than was meant",
			"extend the ladder of the namespace: a month takes `1h x 768`, a year `6h x 1488`"
	case OverrideIgnored:
		return "Envoy sends limits with a unit that is unknown or shorter than the ladder can " +
				"cover, or without entries: the limits of the rules apply in their place",
			"correct the override in Envoy, and give the domain a limit for these descriptors"
	case ForwardedUntrusted:
		return "requests from this address carry X-Forwarded-For, which is not read because the " +
				"address is not in --trusted-proxies: all clients behind it share one key",
			"add the address of the proxy to --trusted-proxies"
	case ForwardedMissing:
		return "requests from this trusted proxy have no X-Forwarded-For: all clients behind it " +
				"share its address as their key",
			"have the proxy send X-Forwarded-For (Forwarded and X-Real-IP are not read)"
	case ForwardedMalformed:
		return "X-Forwarded-For of this proxy ends in something that is no IP address: all " +
				"clients behind it share its address as their key",
			"have the proxy append the address that it was called from"
	}
	return "", ""
}
