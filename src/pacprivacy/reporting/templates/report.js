(function () {
  "use strict";
  var slider = document.getElementById("bound");
  if (slider) {
    var stops = JSON.parse(slider.dataset.stops);
    var marker = document.getElementById("marker");
    var guide = document.getElementById("guide");
    var update = function () {
      var stop = stops[Number(slider.value)];
      Object.keys(stop.texts).forEach(function (name) {
        var place = document.getElementById(name);
        if (place) { place.textContent = stop.texts[name]; }
      });
      slider.setAttribute("aria-valuetext", stop.texts["bound-text"]);
      marker.setAttribute("cx", stop.x);
      marker.setAttribute("cy", stop.y);
      guide.setAttribute("x1", stop.x);
      guide.setAttribute("x2", stop.x);
    };
    slider.addEventListener("input", update);
    update();
  }
  var button = document.getElementById("copy");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var source = document.getElementById("certificate");
      var done = function () {
        button.textContent = "Copied";
        setTimeout(function () { button.textContent = "Copy"; }, 1600);
      };
      var byHand = function () {
        var range = document.createRange();
        range.selectNodeContents(source);
        var selection = window.getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        if (document.execCommand("copy")) { done(); }
      };
      if (navigator.clipboard && window.isSecureContext) {
        navigator.clipboard.writeText(source.textContent).then(done, byHand);
      } else {
        byHand();
      }
    });
  }
})();
