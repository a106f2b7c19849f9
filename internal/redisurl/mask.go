package redisurl

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// hidden stands in the place of a secret, as net/url writes it.
const hidden = "xxxxx"

// Mask returns a URL without its passwords, for people to read. It is on the safe side with what is
// not quite a URL: what stands between the first colon and the last @ is taken for a password, and
// so are a port that is no number and all parameters that are not known to be harmless.
func Mask(text string) string {
	scheme, rest := cutScheme(text)
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, secret, ok := strings.Cut(rest[:at], ":")
		if ok && strings.Contains(secret, sentinelPasswordParameter) {
			return scheme + user + ":" + hidden // whose @ that is can't be known
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

// cutScheme returns a scheme with its ://, and what is behind it. Where a password may follow, a
// scheme that is not known is none: it may be the user, and :// part of the password.
func cutScheme(text string) (scheme, rest string) {
	scheme, rest, ok := strings.Cut(text, "://")
	_, err := ofScheme(scheme)
	if !ok || err != nil && strings.Contains(rest, "@") {
		return "", text
	}
	return scheme + "://", rest
}

// maskPorts hides what stands where ports do and is none: the password of user:password, of which
// the host was forgotten.
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

// isAddress tells apart an IPv6 address, which may have a port.
func isAddress(text string) bool {
	_, err := netip.ParseAddrPort(text)
	if err != nil {
		_, err = netip.ParseAddr(strings.Trim(text, "[]"))
	}
	return err == nil
}

func maskParameters(query string) string {
	params := strings.Split(query, "&")
	for i, param := range params {
		name, _, _ := strings.Cut(param, "=")
		switch {
		case name == sentinelPasswordParameter:
			params[i] = name + "=" + hidden
		case !slices.Contains([]string{databaseParameter, sentinelUserParameter}, name):
			params[i] = hidden
		}
	}
	return strings.Join(params, "&")
}
