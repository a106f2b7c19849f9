package redisurl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Kind is the kind of servers at the addresses of a URL.
type Kind string

// The kinds of servers.
const (
	Single   Kind = "redis"
	Cluster  Kind = "redis-cluster"
	Sentinel Kind = "redis-sentinel" // the addresses are sentinels
)

// URL is a parsed URL. The zero value means none.
type URL struct {
	Kind Kind
	// TLS means that connections use TLS. Unix means that Addresses holds the path of a socket.
	TLS, Unix bool
	// Hosts are the addresses as written in the URL, for display.
	Hosts string
	// Addresses are the addresses of the servers, each host:port. There is at least one, and more
	// than one only if Kind is Cluster or Sentinel.
	Addresses []string
	// Database is the number of the database. Of all clusters, only those of Valkey 9 have others
	// than 0.
	Database int
	// Username and Password are empty where there is none.
	Username, Password string
	// Master is the name under which the sentinels know the primary. SentinelUsername and
	// SentinelPassword are the credentials for the sentinels themselves. All three are empty unless
	// Kind is Sentinel.
	Master                             string
	SentinelUsername, SentinelPassword string
}

// The parameters of URLs.
const (
	databaseParameter         = "db"
	sentinelUserParameter     = "sentinel-user"
	sentinelPasswordParameter = "sentinel-password"
)

// defaultSentinelPort is the port of sentinels, defaultPort the port of all other servers.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// Parse parses a URL. Its errors show the URL as [Mask] returns it.
func Parse(text string) (URL, error) {
	u, err := parse(text)
	if err != nil {
		return URL{}, fmt.Errorf("redis URL %q: %w", Mask(text), err)
	}
	return u, nil
}

func parse(text string) (URL, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return URL{}, errors.New("want redis://host:port")
	}
	u, err := ofScheme(scheme)
	if err != nil {
		return u, err
	}
	// net/url does not accept a list of hosts, so take it out before parsing.
	authority, rest := cutBefore(rest, "/?")
	at := strings.LastIndexByte(authority, '@') + 1
	userinfo, hosts := authority[:at], authority[at:]
	generic, err := url.Parse("redis://" + userinfo + "host" + rest)
	if err != nil || (userinfo != "") != (generic.User != nil) || generic.Fragment != "" ||
		hosts != "" && strings.Contains(rest, "@") {
		return u, errors.New("malformed; in a password write %2F for a slash, and so on")
	}
	u.Username = generic.User.Username()
	u.Password, _ = generic.User.Password()
	if u.Unix {
		err = u.readPath(hosts, generic.Path)
	} else {
		err = u.readHosts(hosts)
	}
	if err != nil {
		return u, err
	}
	return u, u.readTail(generic)
}

// ofScheme returns a URL with only the fields that its scheme determines.
func ofScheme(scheme string) (u URL, err error) {
	switch strings.Replace(scheme, "rediss", "redis", 1) {
	case "redis":
		u.Kind = Single
	case "redis+cluster":
		u.Kind = Cluster
	case "redis+sentinel":
		u.Kind = Sentinel
	case "unix":
		u.Kind, u.Unix = Single, true
	default:
		return u, errors.New("unknown scheme, want redis, rediss, unix, redis+cluster or " +
			"redis+sentinel")
	}
	u.TLS = strings.HasPrefix(scheme, "rediss")
	return u, nil
}

func cutBefore(text, chars string) (before, rest string) {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

func (u *URL) readPath(hosts, path string) error {
	if hosts != "" || strings.Trim(path, "/") == "" {
		return errors.New("want the path of a socket, such as unix:///run/redis.sock")
	}
	u.Hosts, u.Addresses = path, []string{path}
	return nil
}

func (u *URL) readHosts(hosts string) error {
	u.Hosts = hosts
	port := defaultPort
	if u.Kind == Sentinel {
		port = defaultSentinelPort
	}
	for host := range strings.SplitSeq(hosts, ",") {
		address, err := withPort(host, port)
		if err != nil {
			return err
		}
		u.Addresses = append(u.Addresses, address)
	}
	if u.Kind == Single && len(u.Addresses) > 1 {
		return errors.New("several hosts, want redis+cluster://host,host or " +
			"redis+sentinel://host,host/master-name")
	}
	return nil
}

// withPort returns host:port with the host's own port, or with the given default if it has none.
func withPort(host, port string) (string, error) {
	if name, own, err := net.SplitHostPort(host); err == nil {
		host, port = name, own
	} else if inside, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inside, "]")
	}
	switch {
	case host == "":
		return "", errors.New("a host is missing")
	case !isHost(host):
		return "", errors.New("a host is neither a name nor an address")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("a port is a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

// isHost reports whether text can be the name or the address of a host. A text that only the
// resolver would refuse, long after the start, is often an unescaped password.
func isHost(text string) bool {
	if strings.Contains(text, ":") {
		return isAddress(text)
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	})
}

// readTail reads the part after the hosts: master, database and parameters.
func (u *URL) readTail(generic *url.URL) error {
	var segments []string
	if !u.Unix {
		segments = strings.FieldsFunc(generic.Path, func(r rune) bool { return r == '/' })
	}
	if u.Kind == Sentinel {
		if len(segments) == 0 {
			return errors.New("want redis+sentinel://host:port,host:port/master-name")
		}
		u.Master, segments = segments[0], segments[1:]
	}
	query, err := u.readQuery(generic.RawQuery)
	if err != nil {
		return err
	}
	if database := query.Get(databaseParameter); database != "" {
		segments = append(segments, database)
	}
	return u.readDatabase(segments)
}

func (u *URL) readQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("malformed parameters") // the library's error would show them
	}
	known := []string{databaseParameter}
	if u.Kind == Sentinel {
		known = append(known, sentinelUserParameter, sentinelPasswordParameter)
	}
	for name := range query {
		if !slices.Contains(known, name) { // don't show it: it may be half of a password
			return nil, fmt.Errorf("unknown parameter, want %s", strings.Join(known, ", "))
		}
	}
	u.SentinelUsername = query.Get(sentinelUserParameter)
	u.SentinelPassword = query.Get(sentinelPasswordParameter)
	return query, nil
}

// readDatabase sets the database. names lists every database that the URL names; more than one is
// an error.
func (u *URL) readDatabase(names []string) error {
	switch {
	case len(names) == 0:
		return nil
	case len(names) > 1:
		return fmt.Errorf("databases %q, want one", names)
	}
	n, err := strconv.ParseUint(names[0], 10, 31)
	if err != nil {
		return fmt.Errorf("database %q, want a number", names[0])
	}
	u.Database = int(n)
	return nil
}

// User returns the name of the user for an ACL: "default" if the URL has none.
func (u URL) User() string { return cmp.Or(u.Username, "default") }

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
