use super::*;

async fn direct(bytes: &str) -> (Vec<String>, Option<HttpRefusal>) {
    let host = TargetHost::read("ok.test").unwrap();
    let mut reader = RequestReader::new(bytes.as_bytes());
    let mut passed = Vec::new();
    loop {
        match reader.has_next().await {
            Ok(true) => {}
            _ => return (passed, None),
        }
        let mut server = Vec::new();
        let request = match reader.next_for(&host, 80).await {
            Ok(request) => request,
            Err(refusal) => return (passed, Some(refusal)),
        };
        server.extend(&request.head);
        match reader.pass_body(&request, &mut server).await {
            Ok(_) => passed.push(String::from_utf8(server).unwrap()),
            Err(refusal) => return (passed, Some(refusal)),
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn requests_for_the_host_are_passed_on_one_by_one() {
    let (passed, refusal) = direct(
        "GET /a?b HTTP/1.1\r\nHost: OK.test\r\nX: y\r\n\r\n\
         POST /c HTTP/1.1\r\nhost: ok.test:80\r\nContent-Length: 3\r\n\r\nabc\
         PUT /d HTTP/1.1\r\nHost: ok.test.\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nSecret: t\r\n\r\n\
         GET http://ok.test/e HTTP/1.1\r\nHost: ok.test\r\n\r\n\
         OPTIONS * HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(refusal, None);
    assert_eq!(
        passed,
        [
            "GET /a?b HTTP/1.1\r\nhost: OK.test\r\nx: y\r\n\r\n",
            "POST /c HTTP/1.1\r\nhost: ok.test:80\r\ncontent-length: 3\r\n\r\nabc",
            "PUT /d HTTP/1.1\r\nhost: ok.test.\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "GET /e HTTP/1.1\r\nhost: ok.test\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: ok.test\r\nconnection: close\r\n\r\n",
        ]
    );
}

/// Each of these is one host to one reader and another host to another.
#[tokio::test(flavor = "current_thread")]
async fn requests_that_could_be_for_another_host_end_the_connection() {
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: no.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test\r\nHost: ok.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test\r\nHOST: no.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test, no.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test@no.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test/no.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test\r\n : no.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : ok.test\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\n Host: ok.test\r\n\r\n",
        "GET http://no.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET http://ok.test@no.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET http://ok.test:81/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET http://ok.test/ HTTP/1.1\r\nHost: no.test\r\n\r\n",
        "GET https://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET //no.test HTTP/1.1\r\n\r\n",
        "GET ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "CONNECT no.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: ok.test\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3, 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "\u{16}\u{3}\u{1}\u{0}\u{5}hello",
        "GET / HTTP/1.1\r\nHost: ok.test\r\nX: \u{0}\r\n\r\n",
    ] {
        // Alone, and behind one that is fine.
        let (passed, refusal) = direct(request).await;
        assert!(
            passed.is_empty() && refusal.is_some(),
            "{request:?}: {passed:?}"
        );
        let fine = "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n";
        let (passed, refusal) = direct(&format!("{fine}{request}")).await;
        assert_eq!((passed.len(), refusal.is_some()), (1, true), "{request:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_for_the_next_hop_is_not_passed_on() {
    let (passed, _) = direct(
        "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade, Host\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nTE: trailers\r\n\r\n",
    )
    .await;
    assert_eq!(passed, ["GET / HTTP/1.1\r\nhost: ok.test\r\n\r\n"]);
}

#[tokio::test(flavor = "current_thread")]
async fn heads_without_end_are_not_read_to_their_end() {
    let long = format!(
        "GET /{} HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "a".repeat(40_000)
    );
    assert!(direct(&long).await.1.is_some());
    let many = format!(
        "GET / HTTP/1.1\r\nHost: ok.test\r\n{}\r\n",
        "a: b\r\n".repeat(200)
    );
    assert!(direct(&many).await.1.is_some());
    let trailers = format!(
        "PUT / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n",
        "a: b\r\n".repeat(10_000)
    );
    assert!(direct(&trailers).await.1.is_some());
}

#[tokio::test(flavor = "current_thread")]
async fn a_proxy_request_says_where_it_goes() {
    let ask = async |bytes: &str| RequestReader::new(bytes.as_bytes()).next_for_proxy().await;
    let ok = TargetHost::read("ok.test").unwrap();
    assert_eq!(
        ask("CONNECT OK.test:443 HTTP/1.1\r\nHost: whatever\r\n\r\n").await,
        Ok(ProxyRequest::Connect(ok.clone(), 443))
    );
    let Ok(ProxyRequest::Forward(host, port, request)) =
        ask("GET http://ok.test:8080/x HTTP/1.1\r\nHost: ok.test:8080\r\nProxy-Authorization: secret\r\n\r\n").await
    else {
        panic!("it is passed on");
    };
    assert_eq!((host, port), (ok, 8080));
    assert_eq!(
        String::from_utf8(request.head).unwrap(),
        "GET /x HTTP/1.1\r\nhost: ok.test:8080\r\nconnection: close\r\n\r\n"
    );
    for request in [
        "CONNECT ok.test HTTP/1.1\r\n\r\n",
        "CONNECT ok.test:0 HTTP/1.1\r\n\r\n",
        "CONNECT ok.test:443:80 HTTP/1.1\r\n\r\n",
        "CONNECT http://ok.test:443 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        "GET http://ok.test/ HTTP/1.1\r\nHost: no.test\r\n\r\n",
        "GET ftp://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
    ] {
        assert!(ask(request).await.is_err(), "{request:?}");
    }
}
