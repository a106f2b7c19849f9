//go:build !linux

package elapsed

import "time"

// Asleep returns for how long in total the machine has been suspended since it booted. This system
// can't tell, so it is always 0.
func Asleep() time.Duration { return 0 }
