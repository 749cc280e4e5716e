use crate::common::{on_ranks, AT_ONCE, TIMEOUT};
use nxd::{Context, ContextOptions, Error, Result, Status, Store, StoreBackend, World};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);

fn use_store(store: &Store) {
    store.set("key", b"value").unwrap();
    assert_eq!(store.get("key", SHORT).unwrap(), b"value");
    assert_eq!(store.add("count", 3).unwrap(), 3);
    assert_eq!(store.add("count", -1).unwrap(), 2);
    let large = vec![7u8; 5000];
    store.set("large", &large).unwrap();
    assert_eq!(store.get("large", SHORT).unwrap(), large);
    store.set("empty", b"").unwrap();
    assert_eq!(store.get("empty", SHORT).unwrap(), b"");
    let error = store.get("absent", SHORT).unwrap_err();
    assert_eq!(error.status(), Status::TIMEOUT);
    assert!(error.message().contains("absent"), "{}", error);
    assert_eq!(store.get("a\0b", SHORT).unwrap_err().status(), Status::INVALID_ARGUMENT);
}

#[test]
fn all_kinds() {
    use_store(&Store::local().unwrap());
    let path = std::env::temp_dir().join(format!("nxd-store-{}", std::process::id()));
    let file = Store::file(path.to_str().unwrap()).unwrap();
    use_store(&file);
    drop(file);
    std::fs::remove_file(&path).unwrap();
    let server = Store::tcp_server("127.0.0.1", 0, TIMEOUT).unwrap();
    let client = Store::tcp("127.0.0.1", server.port().unwrap(), TIMEOUT).unwrap();
    use_store(&client);
    assert_eq!(server.get("key", SHORT).unwrap(), b"value");
    assert_eq!(Store::local().unwrap().port().unwrap_err().status(), Status::INVALID_ARGUMENT);
}

#[derive(Default)]
struct Map {
    values: Mutex<HashMap<String, Vec<u8>>>,
    refuse: bool,
    _dropped: Option<OnDrop>,
}

struct OnDrop(Arc<Mutex<u32>>);

impl StoreBackend for Map {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        if self.refuse {
            return Err(Error::user("the map is closed"));
        }
        self.values.lock().unwrap().insert(key.into(), value.to_vec());
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.values.lock().unwrap().get(key).cloned())
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let mut values = self.values.lock().unwrap();
        let entry = values.entry(key.into()).or_insert_with(|| b"0".to_vec());
        let sum = std::str::from_utf8(entry).unwrap().parse::<i64>().unwrap() + amount;
        *entry = sum.to_string().into_bytes();
        Ok(sum)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[test]
fn of_ones_own() {
    let dropped = Arc::new(Mutex::new(0));
    let store =
        Store::over(Map { _dropped: Some(OnDrop(dropped.clone())), ..Default::default() }).unwrap();
    use_store(&store);
    let contexts: Vec<_> = std::thread::scope(|scope| {
        let store = &*store;
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                scope.spawn(move || {
                    let world = World::Store { store, rank, size: 2 };
                    Context::create_with(&ContextOptions { world, ..Default::default() }).unwrap()
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    drop(store);
    assert_eq!(*dropped.lock().unwrap(), 0, "the contexts keep it");
    drop(contexts);
    assert_eq!(*dropped.lock().unwrap(), 1);
}

#[test]
fn its_own_error_comes_back() {
    let store = Store::over(Map { refuse: true, ..Default::default() }).unwrap();
    let error = store.set("key", b"").unwrap_err();
    assert_eq!(error.status(), Status::USER);
    assert!(error.message().contains("the map is closed"), "{}", error);
    // And is not found again where it does not belong.
    let other = Store::local().unwrap().get("absent", Duration::from_millis(1)).unwrap_err();
    assert!(!other.message().contains("closed"), "{}", other);
}

#[test]
fn local_ones_make_worlds() {
    assert_eq!(on_ranks(3, |ctx| ctx.rank()), [0, 1, 2]);
}

/// A short time is not none, which would be the default of five minutes.
#[test]
fn a_short_time_is_one() {
    let start = std::time::Instant::now();
    // Nobody serves there.
    let error = Store::tcp("127.0.0.1", 9, Duration::from_micros(10)).unwrap_err();
    assert!([Status::TIMEOUT, Status::IO].contains(&error.status()), "{}", error);
    assert!(start.elapsed() < AT_ONCE);
}
