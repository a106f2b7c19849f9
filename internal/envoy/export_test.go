package envoy

// NewCodec returns the codec of a server.
var NewCodec = newCodec

// CallBytes returns the memory for all requests.
func (s *Server) CallBytes() (most int64) {
	for _, of := range s.conns.Accounts[:streams] {
		most += of.Most
	}
	return most
}

// CallBytesInUse returns the memory that requests hold.
func (s *Server) CallBytesInUse() int64 { return s.conns.Held(streams) }

// IsAwaited reports whether a request waits for memory.
func (s *Server) IsAwaited() bool {
	return s.conns.Accounts[calls].HasWaiters() || s.conns.Accounts[works].HasWaiters()
}

// StreamBytesInUse returns the memory that long-lived streams hold.
func (s *Server) StreamBytesInUse() int64 { return s.conns.Accounts[streams].InUse() }

// Conns returns the number of connections.
func (s *Server) Conns() int { return s.conns.InUse() }

// Unread returns the number of answers still to be written.
func (s *Server) Unread() (n int) {
	for _, c := range s.Live() {
		c.mu.Lock()
		for _, st := range c.streams {
			if !st.ended.IsZero() {
				n++
			}
		}
		c.mu.Unlock()
	}
	return n
}

// Answered returns the number of decisions.
func (s *Server) Answered() int64 { return s.counters.passed.Load() + s.counters.over.Load() }

// Methods returns the full names of the methods.
func (s *Server) Methods() (names []string) {
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			names = append(names, "/"+service+"/"+m.Name)
		}
	}
	return names
}
