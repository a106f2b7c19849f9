package redisurl

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// hidden replaces a secret, as in net/url.
const hidden = "xxxxx"

// Mask returns a URL without its passwords, for display. It errs on the safe side with malformed
// URLs: it masks everything between the first colon and the last @, a port that is not a number,
// and all parameters that are not known to be harmless.
func Mask(text string) string {
	scheme, rest := cutScheme(text)
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, secret, ok := strings.Cut(rest[:at], ":")
		if ok && strings.Contains(secret, sentinelPasswordParameter) {
			return scheme + user + ":" + hidden // the @ may be part of the sentinel password
		}
		if ok {
			rest = user + ":" + hidden + rest[at:]
		}
	}
	rest, query, ok := strings.Cut(rest, "?")
	if !strings.Contains(rest, "@") {
		rest = maskPorts(rest)
	}
	if ok {
		rest += "?" + maskParameters(query)
	}
	return scheme + rest
}

// cutScheme cuts text after its scheme and the ://. If a password may follow, it only cuts known
// schemes: an unknown one may be the user, and :// part of the password.
func cutScheme(text string) (scheme, rest string) {
	scheme, rest, ok := strings.Cut(text, "://")
	_, err := ofScheme(scheme)
	if !ok || err != nil && strings.Contains(rest, "@") {
		return "", text
	}
	return scheme + "://", rest
}

// maskPorts masks ports that are not numbers: a user who wrote user:password and forgot the host
// left the password there.
func maskPorts(rest string) string {
	authority, path := cutBefore(rest, "/")
	hosts := strings.Split(authority, ",")
	for i, host := range hosts {
		name, port, ok := strings.Cut(host, ":")
		if ok && !isPort(port) && !isAddress(host) {
			hosts[i] = name + ":" + hidden
		}
	}
	return strings.Join(hosts, ",") + path
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// isAddress reports whether text is an IP address, with or without a port. It distinguishes the
// colons of an IPv6 address from the one before a port.
func isAddress(text string) bool {
	_, err := netip.ParseAddrPort(text)
	if err != nil {
		_, err = netip.ParseAddr(strings.Trim(text, "[]"))
	}
	return err == nil
}

func maskParameters(query string) string {
	harmless := []string{databaseParameter, sentinelUserParameter}
	params := strings.Split(query, "&")
	for i, param := range params {
		name, _, _ := strings.Cut(param, "=")
		plain, _ := url.QueryUnescape(name)
		switch {
		case plain == sentinelPasswordParameter:
			params[i] = name + "=" + hidden
		case param != "" && !slices.Contains(harmless, plain):
			params[i] = hidden
		}
	}
	return strings.Join(params, "&")
}
